"""Which characters and pieces words are made of: byte-level BPE, SentencePiece, punctuation."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from greenadapt.errors import InputError
from greenadapt.storage.arrays import BoolArray, IntArray

SPACE_MARK = "Ġ"
"""The mark for the space before a word."""


def _alphabet() -> dict[int, str]:
    """Byte → character: printable Latin-1 as it is, the rest from U+0100 on."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {**{byte: chr(byte) for byte in kept}, **{byte: chr(0x100 + i) for i, byte in enumerate(rest)}}


_CHARACTERS = _alphabet()
_BYTES = {ord(character): chr(byte) for byte, character in _CHARACTERS.items()}


def to_byte_characters(text: str) -> str:
    """``text`` as byte-level BPE writes it, one character for each UTF-8 byte."""
    return text.encode().decode("latin-1").translate(_CHARACTERS)


def from_byte_characters(entry: str, errors: str = "strict") -> str:
    """The text of a byte-level string; raises ``UnicodeError`` where its bytes are not whole characters.

    ``errors="replace"`` puts U+FFFD in their place.
    """
    return entry.translate(_BYTES).encode("latin-1").decode(errors=errors)


WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
"""Unicode categories whose every character is ``\\w`` to the tokenizers library, where added tokens end."""
# Thai and Lao, Myanmar, Khmer, Han and kana with their signs.
UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
"""The characters of scripts that set no spaces between words, as a regular expression."""
_UNSPACED = re.compile(UNSPACED)
_JOINERS = "\u200c\u200d"  # within words, of Persian and Hindi for example


_FIRST_COMPOSED = 0x300


def composes(characters: IntArray) -> BoolArray:
    """Which code points (n,) are parts of the character before them: marks, and all but the first letter of Hangul."""
    found = np.zeros(len(characters), bool)
    later = np.flatnonzero(characters >= _FIRST_COMPOSED)
    kinds, which = np.unique(characters[later], return_inverse=True)
    found[later] = np.array([_composes(chr(code)) for code in kinds.tolist()], bool)[which]
    return found


def _composes(character: str) -> bool:
    is_jamo = "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"
    return is_jamo or unicodedata.category(character).startswith("M")


def is_of_spaced_word(character: str) -> bool:
    r"""Whether it is ``\w``, of a script that sets spaces between words."""
    is_of_word = unicodedata.category(character) in WORD_CATEGORIES or character in _JOINERS
    return is_of_word and not _UNSPACED.match(character)


SPACE = "▁"
"""The mark for the space before a word."""
_WORD, _ALONE, _MARK, _INNER = range(4)
_BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class WordBounds:
    r"""Between which pieces of one pre-token a word ends.

    A pre-token is what stands between two spaces. It is cut on both sides of each character that is not ``\w``, or is
    of a script that sets no spaces between words, but only where one of the model's own pieces ends, so that words
    are whole pieces: ``▁(`` ``ta`` ``chy`` ``cardia`` ``),`` is the words ``(``, ``tachycardia`` and ``),``, and ``▁``
    ``日本`` ``では`` the words ``日本`` and ``では``. A space mark alone belongs to the word after it. What the model
    has no piece for is cut by its text, also if it is spelled in bytes.
    """

    unk_id: int | None
    of_bytes: Mapping[int, str]
    """The pieces that are one byte each, as ``surrogateescape`` writes it."""
    first: bytes
    """What each id begins with: a word's character, one that stands alone, the mark, or the inner byte of one."""
    last: bytes
    """What it ends with; the mark only if there is nothing else."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, unk_id: int | None) -> "WordBounds":
        """Those of a tokenizer's vocabulary; its added tokens stand alone."""
        entries: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        alone = tokenizer.get_added_tokens_decoder()
        bounds = bytearray(1 + max(entries.values(), default=-1)), bytearray(1 + max(entries.values(), default=-1))
        has_bytes = getattr(tokenizer.model, "byte_fallback", unk_id is None)
        found = {row: _BYTE.fullmatch(entry) for entry, row in entries.items()} if has_bytes else {}
        values = {row: bytes([int(match[1], 16)]) for row, match in found.items() if match}
        of_bytes = {row: byte.decode("utf-8", "surrogateescape") for row, byte in values.items()}
        for entry, row in entries.items():
            text = entry.lstrip(SPACE)
            if row in of_bytes:
                ends = (_INNER if "\udc80" <= of_bytes[row] < "\udcc0" else _WORD), _WORD
            elif row in alone:
                ends = _ALONE, _ALONE
            elif not text:
                ends = _MARK, _MARK
            else:
                ends = (_sentencepiece_kind(entry[0]) if text == entry else _MARK), _sentencepiece_kind(text[-1])
            bounds[0][row], bounds[1][row] = ends
        return cls(unk_id, of_bytes, *map(bytes, bounds))

    def of_piece(self, piece: int, text: str) -> tuple[int, int]:
        """What a piece of this text begins and ends with."""
        if piece == self.unk_id and text:
            return _sentencepiece_kind(text[0]), _sentencepiece_kind(text[-1])
        if piece in self.of_bytes and text:
            return (_INNER if self.first[piece] == _INNER else _sentencepiece_kind(text[0])), _sentencepiece_kind(
                text[0]
            )
        return self.first[piece], self.last[piece]

    @cached_property
    def _by_text(self) -> IntArray:
        return np.array([*([] if self.unk_id is None else [self.unk_id]), *self.of_bytes], np.int32)

    def begins(self, ids: IntArray, text_of: Callable[[int], str]) -> BoolArray:
        """Which of the pieces ``ids`` (n,) begin a word, (n,); ``text_of`` tells the text of the i-th."""
        first, last = (np.frombuffer(kinds, np.uint8)[ids] for kinds in (self.first, self.last))
        for i in np.flatnonzero(np.isin(ids, self._by_text)).tolist():
            first[i], last[i] = self.of_piece(int(ids[i]), text_of(i))
        begins = np.ones(len(ids), bool)
        begins[1:] = ends_word(last[:-1], first[1:])
        return begins

    def is_one_word(self, pieces: Sequence[int]) -> bool:
        """Whether these pieces of a word without spaces, punctuation or unspaced script are not parted."""
        parted = any(ends_word(self.last[before], self.first[after]) for before, after in pairwise(pieces))
        return not parted and self.last[pieces[-1]] == _WORD


def ends_word(last: Any, first: Any) -> Any:
    """Whether a word ends between two pieces, by what the former ends and the latter begins with; numbers or arrays."""
    return (first == _MARK) | ((last == _ALONE) & (first != _INNER)) | ((first == _ALONE) & (last != _MARK))


@cache
def _sentencepiece_kind(character: str) -> int:
    return _WORD if is_of_spaced_word(character) else _ALONE


def find_unknown(tokenizer: Tokenizer) -> int | None:
    """The id of what a Unigram model has no piece for; ``None`` if it spells that in bytes.

    Raises ``InputError`` if the model says neither.
    """
    # The library does not tell; this code point will never be a character, so no vocabulary has it.
    try:
        ids = Tokenizer(tokenizer.model).encode("\U0010ffff", add_special_tokens=False).ids
    except Exception as error:  # the library raises nothing narrower
        raise InputError(
            f"the tokenizer does not say what it makes of unknown text ({error})", "use the model's own tokenizer.json"
        ) from None
    return int(ids[0]) if len(ids) == 1 else None


def best_spelling(word: str, row: str, scores: Mapping[str, float], longest: int) -> list[str]:
    """The likeliest pieces of ``word`` by ``scores`` (Kudo 2018) without the piece ``row``, which it is now.

    Empty if nothing spells it. No piece is longer than ``longest``.
    """
    text = SPACE + word if all(map(is_of_spaced_word, word)) else word
    best: list[tuple[float, int]] = [(0.0, 0)]  # of each prefix: its score, and where its last piece begins
    for end in range(1, len(text) + 1):
        begins = range(max(0, end - longest), end)
        known = (begin for begin in begins if text[begin:end] in scores and text[begin:end] not in (row, SPACE + word))
        best.append(max(((best[begin][0] + scores[text[begin:end]], begin) for begin in known), default=(-np.inf, 0)))
    if best[-1][0] == -np.inf:
        return []
    found: list[str] = []
    end = len(text)
    while end:
        begin = best[end][1]
        found.insert(0, text[begin:end])
        end = begin
    return found
