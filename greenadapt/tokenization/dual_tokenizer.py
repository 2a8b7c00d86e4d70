"""Both tokenizations of a text, the base model's and the expanded one, in one pass of the base tokenizer."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from tokenizers import Encoding, Tokenizer

from greenadapt.errors import InputError, MissingError
from greenadapt.storage.arrays import BoolArray, IntArray, Sequences, offsets_of
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.tokenization.files import SpecialIds, special_ids, tokenizer_settings
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer, reads_whole_texts, word_bounds
from greenadapt.tokenization.words import composes

BASE_FOLDER = "base_tokenizer"
TextOrWords = str | Sequence[str]

# Characters per call of a tokenizer: its result takes 150 times their memory.
_AT_ONCE = 1 << 17
# Where a text can be cut without changing its pieces: before a space between two words.
_SPACE = re.compile(r"(?<=[^\W_]) (?=[^\W_])")
# White space to tokenizers: the mark before a word may stand for any of these.
_WHITE = np.array(
    [ord(c) for c in "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"] + [*range(0x2000, 0x200B)]
)


@dataclass(frozen=True)
class Pieces:
    """One tokenization, without special tokens around it; all arrays have one entry per piece.

    ``ids`` (n,) int32; ``words`` (n,) int32, the word that a piece belongs to, numbered from 0 with none left out;
    ``spans`` (n, 2) int32, first character and the one after the last, without the space before a word; for pre-split
    text ``given`` (n,) int32, the index of the given word, else ``None``. A piece that is only the mark of a space has
    the span of the word's first character, or an empty one before it.
    """

    ids: IntArray
    words: IntArray
    spans: IntArray
    given: IntArray | None


@dataclass(frozen=True)
class DualEncoding:
    """The same words of one text in both tokenizations."""

    base: Pieces
    expanded: Pieces

    @property
    def n_words(self) -> int:
        """How many words both have; a word is a pre-token of the base tokenizer, or what ``WordBounds`` cut it into."""
        return int(self.base.words[-1]) + 1 if len(self.base.words) else 0


class DualTokenizer:
    """Encodes text with the base tokenizer, and words that have a row of their own as that one id.

    Every added word becomes one piece and every other word is cut as the base tokenizer cuts it (Poerner et al. 2020,
    section 4). With ``greedy``, the WordPiece tokenizer whose vocabulary the words were put into, the expanded view is
    that tokenizer's (their code). Truncates nothing. ``base`` is the base tokenizer, without truncation, padding or
    template.

    Raises ``InputError`` if words are added to a tokenizer whose words are not known.
    """

    def __init__(self, base_folder: Path, added: AddedWords, greedy: Tokenizer | None = None) -> None:
        self.base = load_tokenizer(base_folder)
        self._folder = base_folder
        self.added = added
        self._unk_id = BaseVocabulary(self.base).unk_id if len(added) else None
        self._bounds = word_bounds(self.base)
        self._single = _single_pieces(added)
        # The template trims the spans of some models only; here all spans are trimmed.
        self.base.post_processor = None
        self._greedy = greedy
        if greedy is not None:
            greedy.post_processor = None

    @cached_property
    def special(self) -> SpecialIds:
        """The ids of the special tokens; raises ``InputError`` if the model has none to frame a text with."""
        return special_ids(self.base, tokenizer_settings(self._folder))

    @classmethod
    def load(cls, folder: Path | str) -> "DualTokenizer":
        """The tokenizer of an expanded model's folder; raises ``MissingError`` if it is not one."""
        folder = Path(folder)
        for path in (folder / WORDS_FILE, folder / BASE_FOLDER / "tokenizer.json"):
            if not path.is_file():
                raise MissingError(
                    f"{folder} is not an expanded model: it has no {path.relative_to(folder)}", "create one with expand"
                )
        added = AddedWords.open(folder / WORDS_FILE)
        greedy = load_tokenizer(folder) if added.oov == "greedy" else None
        return cls(folder / BASE_FOLDER, added, greedy)

    @classmethod
    def of_model(cls, folder: Path, n_rows: int) -> "DualTokenizer":
        """The tokenizer of any model's folder, expanded or not; with ``n_rows`` of embedding and no words added, both
        views of a text are the same. Raises ``InputError`` if the words need more rows.
        """
        if not (folder / WORDS_FILE).is_file():
            return cls(folder, AddedWords.none(n_rows))
        tokenizer = cls.load(folder)
        needed = tokenizer.added.first_id + len(tokenizer.added)
        if needed > n_rows:
            raise InputError(
                f"{folder / WORDS_FILE} has words for {needed:,} rows of the embedding, which has {n_rows:,}",
                "copy the words and weights of the same model",
            )
        return tokenizer

    def encode(self, text: TextOrWords) -> DualEncoding:
        """Encode one text, or one list of words that are already split; see ``encode_batch``."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[TextOrWords]) -> list[DualEncoding]:
        """Encode texts, each a string or a list of given words.

        Given words are joined by spaces, and spans are those in the joined text; a given word that yields no piece (a
        zero-width character, an empty string) gets one ``[UNK]``, so that both views have all given words.
        """
        batch = _Batch([text if isinstance(text, str) else " ".join(text) for text in texts], texts)
        base = batch.complete(self._cut(_encode(self.base, batch.texts), batch), self)
        if self._greedy is not None:
            expanded = batch.complete(_encode(self._greedy, batch.texts), self)
        else:
            expanded = self._merge(base, batch)
        return [DualEncoding(*views) for views in zip(batch.split(base), batch.split(expanded), strict=True)]

    def _cut(self, pieces: "_Flat", batch: "_Batch") -> "_Flat":
        """Let words begin within pre-tokens, if the base tokenizer's hold several."""
        if self._bounds is None:
            return pieces
        begins = self._bounds.begins(pieces.ids, lambda i: batch.text_of(pieces, i))
        return replace(pieces, begins=pieces.begins | begins)

    def _merge(self, base: "_Flat", batch: "_Batch") -> "_Flat":
        """Replace the pieces of each added word by its one id."""
        starts = np.flatnonzero(base.begins)
        words = Sequences(base.ids, np.append(starts, len(base.ids)))
        lengths = np.diff(words.offsets)
        new_ids = np.full(len(words), -1, np.int64)
        may_be_new = lengths > 1
        if len(self._single):
            may_be_new |= np.isin(base.ids[starts], self._single)
        asked = np.flatnonzero(may_be_new)
        new_ids[asked] = self.added.find(words.take(asked))
        if len(self.added.unknown):
            unknown = np.flatnonzero((lengths == 1) & (base.ids[starts] == self._unk_id))
            surfaces = [self._surface(batch.text_of(base, piece)) for piece in starts[unknown].tolist()]
            new_ids[unknown] = self.added.find_surfaces(surfaces)
        is_new = new_ids >= 0
        keep = base.begins | np.repeat(~is_new, lengths)
        ids, spans = base.ids.copy(), base.spans.copy()
        ids[starts[is_new]] = new_ids[is_new]
        spans[starts[is_new], 1] = spans[words.offsets[1:][is_new] - 1, 1]
        return _Flat(ids[keep], base.begins[keep], spans[keep], base.lines[keep], base.given[keep])

    def _surface(self, text: str) -> str:
        """The pre-token that the given text begins with."""
        normalizer, pre_tokenizer = self.base.normalizer, self.base.pre_tokenizer
        text = normalizer.normalize_str(text) if normalizer is not None else text
        return next((token for token, _ in pre_tokenizer.pre_tokenize_str(text)), "")


def _single_pieces(added: AddedWords) -> IntArray:
    """The base pieces that are an added word where no space is before it."""
    if added.owners is None:
        return np.zeros(0, np.int32)
    stored = added.pieces.stored
    return np.asarray(stored.values[stored.offsets[:-1][np.diff(stored.offsets) == 1]])


@dataclass(frozen=True)
class _Flat:
    """The pieces of many texts end to end: id, whether a word begins, span, which text, and the given word."""

    ids: IntArray
    begins: BoolArray
    spans: IntArray
    lines: IntArray
    given: IntArray


@dataclass(frozen=True)
class _Part:
    """A text or a part of one: its index, and the offset of its first character."""

    text: str
    line: int
    begin: int = 0


def _encode(tokenizer: Tokenizer, texts: list[str]) -> _Flat:
    """The pieces of texts of any length."""
    found = []
    for parts in _at_once(tokenizer, texts):
        pieces = _flatten(tokenizer.encode_batch([part.text for part in parts], add_special_tokens=False))
        begins = np.array([part.begin for part in parts], np.int32)[pieces.lines]
        lines = np.array([part.line for part in parts], np.int32)[pieces.lines]
        found.append(replace(pieces, spans=pieces.spans + begins[:, None], lines=lines))
    return _Flat(*(np.concatenate([getattr(one, field.name) for one in found]) for field in fields(_Flat)))


def _at_once(tokenizer: Tokenizer, texts: list[str]) -> Iterator[list[_Part]]:
    """All texts in batches of about ``_AT_ONCE`` characters, long ones in parts."""
    added = tokenizer.get_added_tokens_decoder().values()
    tokens = (f"{'a ' if token.lstrip else ''}{token.content}{' a' if token.rstrip else ''}" for token in added)
    is_long = max(map(len, texts), default=0) > _AT_ONCE
    # An added token may contain such a space, and a normalizer of whole texts begin each part with a mark.
    can_cut = is_long and not any(map(_SPACE.search, tokens)) and not reads_whole_texts(tokenizer)
    parts: list[_Part] = []
    n = 0
    for line, text in enumerate(texts):
        for part in _parts(text, line) if can_cut else [_Part(text, line)]:
            parts.append(part)
            n += len(part.text)
            if n >= _AT_ONCE:
                yield parts
                parts, n = [], 0
    yield parts


def _parts(text: str, line: int) -> Iterator[_Part]:
    begin = 0
    while len(text) - begin > _AT_ONCE and (space := _SPACE.search(text, begin + _AT_ONCE)):
        yield _Part(text[begin : space.start()], line, begin)
        begin = space.start()
    yield _Part(text[begin:], line, begin)


def _flatten(encodings: list[Encoding]) -> _Flat:
    ids = [encoding.ids for encoding in encodings]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    total = int(lengths.sum())
    words = np.fromiter(chain.from_iterable(encoding.word_ids for encoding in encodings), np.int64, total)
    pairs = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
    spans = np.fromiter(pairs, np.int32, 2 * total).reshape(total, 2)
    lines = np.repeat(np.arange(len(ids), dtype=np.int32), lengths)
    begins = np.ones(total, bool)
    begins[1:] = (words[1:] != words[:-1]) | (lines[1:] != lines[:-1])
    return _Flat(np.fromiter(chain.from_iterable(ids), np.int32, total), begins, spans, lines, np.empty_like(lines))


class _Batch:
    """The texts of one call, and where the given words of each begin."""

    def __init__(self, texts: list[str], given: Sequence[TextOrWords]) -> None:
        self.texts = texts
        self._is_split = np.array([not isinstance(text, str) for text in given], bool)
        counts = np.array([0 if isinstance(words, str) else len(words) for words in given], np.int64)
        self._first_given = offsets_of(counts)
        self._lines = np.repeat(np.arange(len(texts)), counts)
        sizes = np.fromiter((len(word) for words in given if not isinstance(words, str) for word in words), np.int64)
        # A text's given words, a space after each: the running sum less the sum before the text.
        before = offsets_of(sizes + 1)
        starts = before[:-1] - np.repeat(before[self._first_given[:-1]], counts)
        self._given = np.stack([starts, starts + sizes], axis=1).astype(np.int32)
        self._first_character = offsets_of(np.fromiter((len(text) + 1 for text in texts), np.int64, len(texts)))
        self._characters = np.frombuffer("".join(f"{text}\n" for text in texts).encode("utf-32-le"), np.uint32)
        self._whole = np.append(np.flatnonzero(~composes(self._characters)), len(self._characters))
        self._visible = np.append(np.flatnonzero(~np.isin(self._characters, _WHITE)), len(self._characters))

    def text_of(self, pieces: _Flat, piece: int) -> str:
        """The characters of one piece and the combining marks that follow.

        A normalizer may reorder such marks, so that a span is that of one that it drops.
        """
        begin, end = pieces.spans[piece].tolist()
        text = self.texts[int(pieces.lines[piece])]
        while end < len(text) and unicodedata.combining(text[end]):
            end += 1
        return text[begin:end]

    def complete(self, pieces: _Flat, tokenizer: DualTokenizer) -> _Flat:
        """Trim spans, find the given word of each piece, and give ``[UNK]`` to given words that have none."""
        pieces = self._trim(pieces)
        if not len(self._given):
            return pieces
        pieces = replace(pieces, given=self._owner(pieces))
        is_split = self._is_split[pieces.lines]
        seen = np.zeros(len(self._given), bool)
        seen[pieces.given[is_split]] = True
        missing = np.flatnonzero(~seen)
        lines = self._lines[missing]
        at = np.searchsorted(self._place(pieces.lines, pieces.spans[:, 0]), self._place(lines, self._given[missing, 0]))
        begins = np.append(pieces.begins, True)
        begins[at] = True
        return _Flat(
            np.insert(pieces.ids, at, tokenizer.special.unk if len(at) else 0),
            np.insert(begins[:-1], at, True),
            np.insert(pieces.spans, at, self._given[missing], axis=0),
            np.insert(pieces.lines, at, lines),
            np.insert(pieces.given, at, missing),
        )

    def split(self, pieces: _Flat) -> list[Pieces]:
        """One ``Pieces`` per text, a slice of the shared arrays."""
        bounds = np.searchsorted(pieces.lines, np.arange(len(self.texts) + 1))
        counted = np.cumsum(pieces.begins)
        before = np.append(counted, 0)[bounds[:-1]]  # the number of the first word of each text, counted from 1
        words = (counted - before[pieces.lines]).astype(np.int32)
        given = (pieces.given - self._first_given[pieces.lines]).astype(np.int32)
        return [
            Pieces(pieces.ids[a:b], words[a:b], pieces.spans[a:b], given[a:b] if split else None)
            for (a, b), split in zip(pairwise(bounds.tolist()), self._is_split.tolist(), strict=True)
        ]

    def _owner(self, pieces: _Flat) -> IntArray:
        """The given word of each piece, counted over all texts; meaningless for a text that is not split."""
        starts = self._place(self._lines, self._given[:, 0])
        # The space between two given words, if it is a piece of its own, belongs to the second.
        return np.searchsorted(starts, self._place(pieces.lines, pieces.spans[:, 0] + 1), "right") - 1

    def _place(self, lines: IntArray, positions: IntArray) -> IntArray:
        """Position in all texts end to end."""
        return self._first_character[lines] + positions

    def _trim(self, pieces: _Flat) -> _Flat:
        """Take the space before a word out of its span; of a word of spaces only, the first one.

        A span ends behind the marks of its last character, which a normalizer may compose or drop.
        """
        last = np.flatnonzero(np.append(pieces.begins, True))[1:] - 1
        first = np.flatnonzero(pieces.begins)
        begin, end = (self._place(pieces.lines[at], pieces.spans[at, i]) for i, at in enumerate((first, last)))
        visible = self._visible[np.searchsorted(self._visible, begin)]
        is_space = (self._characters[begin] == ord(" ")) & (end - begin > 1)
        spans = pieces.spans.copy()
        spans[first, 0] += np.where(visible < end, visible - begin, is_space).astype(np.int32)
        spans[first, 1] = np.maximum(spans[first, 1], spans[first, 0])
        ends = self._place(pieces.lines, spans[:, 1])
        following = np.append(self._place(pieces.lines, spans[:, 0])[1:], len(self._characters))
        whole = np.minimum(self._whole[np.searchsorted(self._whole, ends)], following)
        spans[:, 1] += np.where(spans[:, 1] > spans[:, 0], np.maximum(whole - ends, 0), 0).astype(np.int32)
        return replace(pieces, spans=spans)
