"""Characters of words, byte-level strings, and word bounds between pieces of SentencePiece models."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from greenadapt.store.arrays import BoolArray, IntArray

SPACE_MARK = "Ġ"
"""The mark for the space before a word."""


def _byte_alphabet() -> dict[int, str]:
    """Byte → character: printable Latin-1 unchanged, other bytes from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    remaining = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(0x100 + i) for i, byte in enumerate(remaining)}}


_CHARACTERS = _byte_alphabet()
_BYTES = {ord(character): chr(byte) for byte, character in _CHARACTERS.items()}


def to_byte_characters(text: str) -> str:
    """Encode ``text`` for byte-level BPE, one character for each UTF-8 byte."""
    return text.encode().decode("latin-1").translate(_CHARACTERS)


def from_byte_characters(entry: str, errors: str = "strict") -> str:
    """Decode a byte-level string; raises ``UnicodeError`` if its bytes are not whole characters.

    ``errors="replace"`` replaces such bytes with U+FFFD.
    """
    return entry.translate(_BYTES).encode("latin-1").decode(errors=errors)


WORD_CATEGORIES = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc"})
"""Unicode categories whose characters are all ``\\w`` in the tokenizers library, which ends added tokens there."""
# Thai and Lao, Myanmar, Khmer, Han and kana with related signs.
UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]"
)
"""Characters of scripts without spaces between words, as a regular expression."""
_UNSPACED = re.compile(UNSPACED)
_JOINERS = "\u200c\u200d"  # within words, of Persian and Hindi for example


_FIRST_COMPOSED = 0x300


def composes(characters: IntArray) -> BoolArray:
    """Which code points (n,) belong to the character before: marks, and all but the first letter of Hangul."""
    is_part = np.zeros(len(characters), bool)
    beyond_latin = np.flatnonzero(characters >= _FIRST_COMPOSED)
    kinds, inverse = np.unique(characters[beyond_latin], return_inverse=True)
    is_part[beyond_latin] = np.array([_composes(chr(code)) for code in kinds.tolist()], bool)[inverse]
    return is_part


def _composes(character: str) -> bool:
    is_jamo = "\u1160" <= character <= "\u11ff" or "\ud7b0" <= character <= "\ud7ff"
    return is_jamo or unicodedata.category(character).startswith("M")


def is_of_spaced_word(character: str) -> bool:
    r"""Whether ``character`` is ``\w`` and of a script with spaces between words."""
    is_of_word = unicodedata.category(character) in WORD_CATEGORIES or character in _JOINERS
    return is_of_word and not _UNSPACED.match(character)


SPACE = "▁"
"""The mark for the space before a word."""
_WORD, _ALONE, _MARK, _INNER = range(4)
_BYTE = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class WordBounds:
    r"""Word bounds between the pieces of a pre-token, the text between two spaces.

    A word ends on both sides of each character that is not ``\w``, or is of a script without spaces between words, but
    only at the end of a piece, so that words are whole pieces: ``▁(`` ``ta`` ``chy`` ``cardia`` ``),`` are the words
    ``(``, ``tachycardia`` and ``),``, and ``▁`` ``日本`` ``では`` are ``日本`` and ``では``. A space mark belongs to
    the word after it. Text without a piece (unknown, or spelled in bytes) is cut by its characters.
    """

    unk_id: int | None
    of_bytes: Mapping[int, str]
    """Id → text of the pieces that are single bytes, as decoded by ``surrogateescape``."""
    begin_kinds: bytes
    """Kind of the beginning of each id: a word's character, a single character, the mark, or an inner byte."""
    end_kinds: bytes
    """Kind of the end of each id; the mark only for a piece that is the mark."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, unk_id: int | None) -> "WordBounds":
        """The bounds for a tokenizer's vocabulary; added tokens are words by themselves."""
        entries: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        added_tokens = tokenizer.get_added_tokens_decoder()
        size = 1 + max(entries.values(), default=-1)
        bounds = bytearray(size), bytearray(size)
        has_bytes = getattr(tokenizer.model, "byte_fallback", unk_id is None)
        matches = {row: _BYTE.fullmatch(entry) for entry, row in entries.items()} if has_bytes else {}
        values = {row: bytes([int(match[1], 16)]) for row, match in matches.items() if match}
        of_bytes = {row: byte.decode("utf-8", "surrogateescape") for row, byte in values.items()}
        for entry, row in entries.items():
            text = entry.lstrip(SPACE)
            if row in of_bytes:
                ends = (_INNER if "\udc80" <= of_bytes[row] < "\udcc0" else _WORD), _WORD
            elif row in added_tokens:
                ends = _ALONE, _ALONE
            elif not text:
                ends = _MARK, _MARK
            else:
                ends = (_sentencepiece_kind(entry[0]) if text == entry else _MARK), _sentencepiece_kind(text[-1])
            bounds[0][row], bounds[1][row] = ends
        return cls(unk_id, of_bytes, *map(bytes, bounds))

    def of_piece(self, piece: int, text: str) -> tuple[int, int]:
        """The kinds of the beginning and the end of a piece with this text."""
        if piece == self.unk_id and text:
            return _sentencepiece_kind(text[0]), _sentencepiece_kind(text[-1])
        if piece in self.of_bytes and text:
            kind = _sentencepiece_kind(text[0])
            return (_INNER if self.begin_kinds[piece] == _INNER else kind), kind
        return self.begin_kinds[piece], self.end_kinds[piece]

    @cached_property
    def _by_text(self) -> IntArray:
        return np.array([*([] if self.unk_id is None else [self.unk_id]), *self.of_bytes], np.int32)

    def begins(self, ids: IntArray, text_of: Callable[[int], str]) -> BoolArray:
        """Whether each of the pieces ``ids``, (n,), begins a word, bool (n,).

        ``text_of(i)`` returns the text of piece ``i``; it is called only for unknown pieces and bytes.
        """
        first_kinds, last_kinds = (np.frombuffer(kinds, np.uint8)[ids] for kinds in (self.begin_kinds, self.end_kinds))
        for i in np.flatnonzero(np.isin(ids, self._by_text)).tolist():
            first_kinds[i], last_kinds[i] = self.of_piece(int(ids[i]), text_of(i))
        begins = np.ones(len(ids), bool)
        begins[1:] = ends_word(last_kinds[:-1], first_kinds[1:])
        return begins

    def is_one_word(self, pieces: Sequence[int]) -> bool:
        """Whether the pieces of a word, without spaces, punctuation and unspaced scripts, have no bounds between."""
        bounds = (ends_word(self.end_kinds[before], self.begin_kinds[after]) for before, after in pairwise(pieces))
        return not any(bounds) and self.end_kinds[pieces[-1]] == _WORD


def ends_word(last_kind: Any, first_kind: Any) -> Any:
    """Whether a word ends between two pieces, by the kinds of the adjacent end and beginning; numbers or arrays."""
    return (
        (first_kind == _MARK)
        | ((last_kind == _ALONE) & (first_kind != _INNER))
        | ((first_kind == _ALONE) & (last_kind != _MARK))
    )


@cache
def _sentencepiece_kind(character: str) -> int:
    return _WORD if is_of_spaced_word(character) else _ALONE


def best_spelling(word: str, row: str, scores: Mapping[str, float], longest: int) -> list[str]:
    """The most likely pieces of ``word`` by ``scores`` (Kudo 2018) without the piece ``row``, the whole word.

    Empty if no other pieces spell it. No piece is longer than ``longest``.
    """
    text = SPACE + word if all(map(is_of_spaced_word, word)) else word
    best: list[tuple[float, int]] = [(0.0, 0)]  # for each prefix: score, and start of the last piece
    for end in range(1, len(text) + 1):
        pieces = {begin: text[begin:end] for begin in range(max(0, end - longest), end)}
        candidates = (
            (best[begin][0] + scores[piece], begin)
            for begin, piece in pieces.items()
            if piece in scores and piece not in (row, SPACE + word)
        )
        best.append(max(candidates, default=(-np.inf, 0)))
    spelling: list[str] = []
    end = len(text) if best[-1][0] > -np.inf else 0
    while end:
        begin = best[end][1]
        spelling.insert(0, text[begin:end])
        end = begin
    return spelling
