"""Tokenize text for the base model and the expanded model, in one pass of the base tokenizer."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from greenadapt.errors import InputError, MissingError
from greenadapt.store.arrays import BoolArray, IntArray, Sequences, offsets_of
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.tokenization.files import SpecialIds, special_ids, tokenizer_settings
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer, reads_whole_texts, word_bounds
from greenadapt.tokenization.words import composes

BASE_FOLDER = "base_tokenizer"
TextOrWords = str | Sequence[str]

# Characters per call of a tokenizer, whose result takes 150 times as much memory.
_AT_ONCE = 1 << 17
# Where a text can be cut without changing its pieces: before a space between two words.
_SPACE = re.compile(r"(?<=[^\W_]) (?=[^\W_])")
# White space: a space mark can stand for any of these characters.
_WHITE = np.array(
    [ord(c) for c in "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"] + [*range(0x2000, 0x200B)]
)


@dataclass(frozen=True)
class Pieces:
    """One tokenization of a text, without special tokens; arrays have one entry per piece.

    ``ids`` (n,) int32; ``words`` (n,) int32, the index of the piece's word, consecutive from 0; ``spans`` (n, 2) int32,
    the first character and the end, without the space before a word; ``input_words`` (n,) int32, the index of the input
    word in pre-split text, ``None`` for other text. The span of a piece that is only a space mark is the word's first
    character, or empty.
    """

    ids: IntArray
    words: IntArray
    spans: IntArray
    input_words: IntArray | None

    def counts(self, n_words: int) -> IntArray:
        """The number of pieces of each of ``n_words`` words of pre-split text, (n_words,)."""
        assert self.input_words is not None
        return np.bincount(self.input_words, minlength=n_words)


@dataclass(frozen=True)
class DualEncoding:
    """Both tokenizations of a text, with the same words."""

    base: Pieces
    expanded: Pieces

    @property
    def n_words(self) -> int:
        """Number of words; a word is a pre-token of the base tokenizer, or a part of one by ``WordBounds``."""
        return int(self.base.words[-1]) + 1 if len(self.base.words) else 0


class DualTokenizer:
    """Encodes text with the base tokenizer, and added words as single pieces (Poerner et al. 2020, section 4).

    Other words have the pieces of the base tokenizer. With ``greedy``, a WordPiece tokenizer whose vocabulary includes
    the added words, the expanded view is that tokenizer's, as in their code. Never truncates. ``base`` is the base
    tokenizer without truncation, padding and template.

    Raises ``InputError`` if words are added to an unsupported kind of tokenizer.
    """

    def __init__(self, base_folder: Path, added: AddedWords, greedy: Tokenizer | None = None) -> None:
        self.base = load_tokenizer(base_folder)
        self._folder = base_folder
        self.added = added
        self._unk_id = BaseVocabulary(self.base).unk_id if len(added) else None
        self._bounds = word_bounds(self.base)
        self._single: IntArray = np.zeros(0, np.int32)  # base pieces that are a whole added word without a space
        if added.owners is not None:
            stored = added.pieces
            self._single = np.asarray(stored.values[stored.offsets[:-1][np.diff(stored.offsets) == 1]])
        # Some templates trim spans; _Batch trims all spans.
        self.base.post_processor = None
        self._greedy = greedy
        if greedy is not None:
            greedy.post_processor = None

    @cached_property
    def special(self) -> SpecialIds:
        """The ids of the special tokens; raises ``InputError`` if the model lacks one."""
        return special_ids(self.base, tokenizer_settings(self._folder))

    @classmethod
    def load(cls, folder: Path | str) -> "DualTokenizer":
        """Load the tokenizer of an expanded model; raises ``MissingError`` for another folder."""
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
        """Load the tokenizer of a model with ``n_rows`` embedding rows, expanded or not.

        Without added words both views of a text are equal. Raises ``InputError`` if the words need more or fewer rows.
        """
        if not (folder / WORDS_FILE).is_file():
            return cls(folder, AddedWords.empty(n_rows))
        tokenizer = cls.load(folder)
        needed = tokenizer.added.first_id + len(tokenizer.added)
        if needed != n_rows:
            raise InputError(
                f"{folder / WORDS_FILE} has words for {needed:,} rows of the embedding, which has {n_rows:,}",
                "copy the words and weights of the same model",
            )
        return tokenizer

    def encode(self, text: TextOrWords) -> DualEncoding:
        """Encode a text, or a list of words; see ``encode_batch``."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[TextOrWords]) -> list[DualEncoding]:
        """Encode texts, each a string or a list of words.

        A list is joined by spaces, and spans refer to the joined text. An input word without pieces (a zero-width
        character, an empty string) gets one ``[UNK]``, so that both views have all input words.
        """
        batch = _Batch([text if isinstance(text, str) else " ".join(text) for text in texts], texts)
        pieces = _encode(self.base, batch.texts)
        if self._bounds is not None:  # words of SentencePiece begin within pre-tokens, too
            begins = self._bounds.begins(pieces.ids, lambda i: batch.text_of(pieces, i))
            pieces = replace(pieces, begins=pieces.begins | begins)
        base = batch.complete(pieces, self)
        if self._greedy is not None:
            expanded = batch.complete(_encode(self._greedy, batch.texts), self)
        else:
            expanded = self._merge(base, batch)
        return [DualEncoding(*views) for views in zip(batch.split(base), batch.split(expanded), strict=True)]

    def pieces_of_words(self, words: Sequence[str]) -> tuple[IntArray, IntArray]:
        """The number of pieces of each of ``words`` in the base and in the expanded tokenization, ``(n,)`` each."""
        encoding = self.encode(words)
        return encoding.base.counts(len(words)), encoding.expanded.counts(len(words))

    def _merge(self, base: "_Flat", batch: "_Batch") -> "_Flat":
        """Replace the pieces of each added word with its id."""
        starts = np.flatnonzero(base.begins)
        words = Sequences(base.ids, np.append(starts, len(base.ids)))
        lengths = np.diff(words.offsets)
        new_ids = np.full(len(words), -1, np.int64)
        may_be_new = lengths > 1
        if len(self._single):
            may_be_new |= np.isin(base.ids[starts], self._single)
        candidates = np.flatnonzero(may_be_new)
        new_ids[candidates] = self.added.find(words.take(candidates))
        if len(self.added.unknown):
            unknown = np.flatnonzero((lengths == 1) & (base.ids[starts] == self._unk_id))
            surfaces = [self._surface(batch.unsettled_text_of(base, i)) for i in starts[unknown].tolist()]
            new_ids[unknown] = self.added.find_surfaces(surfaces)
        is_new = new_ids >= 0
        remains = base.begins | np.repeat(~is_new, lengths)
        ids, spans = base.ids.copy(), base.spans.copy()
        ids[starts[is_new]] = new_ids[is_new]
        spans[starts[is_new], 1] = spans[words.offsets[1:][is_new] - 1, 1]
        expanded = replace(base, ids=ids, spans=spans)
        return _Flat(*(getattr(expanded, field.name)[remains] for field in fields(_Flat)))

    def _surface(self, text: str) -> str:
        """The first pre-token of ``text``."""
        normalizer, pre_tokenizer = self.base.normalizer, self.base.pre_tokenizer
        text = normalizer.normalize_str(text) if normalizer is not None else text
        return next((token for token, _ in pre_tokenizer.pre_tokenize_str(text)), "")


@dataclass(frozen=True)
class _Flat:
    """The concatenated pieces of texts: id, whether a word begins, span, index of the text, and input word."""

    ids: IntArray
    begins: BoolArray
    spans: IntArray
    lines: IntArray
    input_words: IntArray


@dataclass(frozen=True)
class _Part:
    """A text or a part of it: the index of the text, and the offset of the first character."""

    text: str
    line: int
    begin: int = 0


def _encode(tokenizer: Tokenizer, texts: list[str]) -> _Flat:
    """Encode texts of any length."""
    batches = []
    for parts in _batch_texts(tokenizer, texts):
        encodings = tokenizer.encode_batch([part.text for part in parts], add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        total = int(lengths.sum())
        words = np.fromiter(chain.from_iterable(encoding.word_ids for encoding in encodings), np.int64, total)
        pairs = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
        spans = np.fromiter(pairs, np.int32, 2 * total).reshape(total, 2)
        of_part = np.repeat(np.arange(len(ids)), lengths)
        begins = np.ones(total, bool)
        begins[1:] = (words[1:] != words[:-1]) | (of_part[1:] != of_part[:-1])
        spans += np.array([part.begin for part in parts], np.int32)[of_part, None]
        lines = np.array([part.line for part in parts], np.int32)[of_part]
        flat_ids = np.fromiter(chain.from_iterable(ids), np.int32, total)
        batches.append(_Flat(flat_ids, begins, spans, lines, np.empty_like(lines)))
        del encodings, ids  # they take more memory than the arrays
    return _Flat(*(np.concatenate([getattr(batch, field.name) for batch in batches]) for field in fields(_Flat)))


def _batch_texts(tokenizer: Tokenizer, texts: list[str]) -> Iterator[list[_Part]]:
    """Yield texts in batches of about ``_AT_ONCE`` characters; long texts are cut."""
    added = tokenizer.get_added_tokens_decoder().values()
    tokens = (f"{'a ' if token.lstrip else ''}{token.content}{' a' if token.rstrip else ''}" for token in added)
    is_long = max(map(len, texts), default=0) > _AT_ONCE
    # Not if an added token contains such a space, or a normalizer of whole texts adds a mark to each part.
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


def _is_unsettled(character: str) -> bool:
    """Whether BERT's normalizer may put a character into another place (a combining mark) or drop it."""
    is_control = unicodedata.category(character)[0] == "C" and character not in "\t\n\r"
    return is_control or character == "\ufffd" or unicodedata.combining(character) > 0


class _Batch:
    """The texts of a call, and the positions of their input words."""

    def __init__(self, texts: list[str], input_words: Sequence[TextOrWords]) -> None:
        self.texts = texts
        self._is_split = np.array([not isinstance(text, str) for text in input_words], bool)
        counts = np.array([0 if isinstance(words, str) else len(words) for words in input_words], np.int64)
        self._first_word = offsets_of(counts)
        self._lines = np.repeat(np.arange(len(texts)), counts)
        sizes = np.fromiter(
            (len(word) for words in input_words if not isinstance(words, str) for word in words), np.int64
        )
        # The offset of a word in its text, with a space after each word: running sums less the sum before the text.
        before = offsets_of(sizes + 1)
        starts = before[:-1] - np.repeat(before[self._first_word[:-1]], counts)
        self._word_spans = np.stack([starts, starts + sizes], axis=1).astype(np.int32)
        self._first_character = offsets_of(np.fromiter((len(text) + 1 for text in texts), np.int64, len(texts)))
        self._characters = np.frombuffer("".join(f"{text}\n" for text in texts).encode("utf-32-le"), np.uint32)
        self._whole = np.append(np.flatnonzero(~composes(self._characters)), len(self._characters))
        self._visible = np.append(np.flatnonzero(~np.isin(self._characters, _WHITE)), len(self._characters))

    def text_of(self, pieces: _Flat, piece: int) -> str:
        """The characters of a piece and the combining marks after it, which a normalizer may reorder."""
        begin, end = pieces.spans[piece].tolist()
        text = self.texts[int(pieces.lines[piece])]
        while end < len(text) and unicodedata.combining(text[end]):
            end += 1
        return text[begin:end]

    def unsettled_text_of(self, pieces: _Flat, piece: int) -> str:
        """The characters of a piece, and those around it that BERT's normalizer may move or drop."""
        begin, end = pieces.spans[piece].tolist()
        text = self.texts[int(pieces.lines[piece])]
        while begin and _is_unsettled(text[begin - 1]) and _is_unsettled(text[begin]):
            begin -= 1
        while end < len(text) and _is_unsettled(text[end]):
            end += 1
        return text[begin:end]

    def complete(self, pieces: _Flat, tokenizer: DualTokenizer) -> _Flat:
        """Trim spans, find the input word of each piece, and add ``[UNK]`` for input words without pieces."""
        pieces = self._trim(pieces)
        if not len(self._word_spans):
            return pieces
        starts = self._global_position(self._lines, self._word_spans[:, 0])
        # A piece for the space between two input words belongs to the second word.
        second_characters = self._global_position(pieces.lines, pieces.spans[:, 0] + 1)
        input_words = np.searchsorted(starts, second_characters, "right") - 1  # undefined for strings
        pieces = replace(pieces, input_words=input_words)
        is_split = self._is_split[pieces.lines]
        has_piece = np.zeros(len(self._word_spans), bool)
        has_piece[pieces.input_words[is_split]] = True
        missing = np.flatnonzero(~has_piece)
        lines = self._lines[missing]
        insertions = np.searchsorted(
            self._global_position(pieces.lines, pieces.spans[:, 0]),
            self._global_position(lines, self._word_spans[missing, 0]),
        )
        begins = np.append(pieces.begins, True)
        begins[insertions] = True
        return _Flat(
            np.insert(pieces.ids, insertions, tokenizer.special.unk if len(insertions) else 0),
            np.insert(begins[:-1], insertions, True),
            np.insert(pieces.spans, insertions, self._word_spans[missing], axis=0),
            np.insert(pieces.lines, insertions, lines),
            np.insert(pieces.input_words, insertions, missing),
        )

    def split(self, pieces: _Flat) -> list[Pieces]:
        """Slice the arrays into one ``Pieces`` per text."""
        bounds = np.searchsorted(pieces.lines, np.arange(len(self.texts) + 1))
        counted = np.cumsum(pieces.begins)
        before = np.append(counted, 0)[bounds[:-1]]  # the number, from 1, of the first word of each text
        words = (counted - before[pieces.lines]).astype(np.int32)
        input_words = (pieces.input_words - self._first_word[pieces.lines]).astype(np.int32)
        return [
            Pieces(pieces.ids[a:b], words[a:b], pieces.spans[a:b], input_words[a:b] if split else None)
            for (a, b), split in zip(pairwise(bounds.tolist()), self._is_split.tolist(), strict=True)
        ]

    def _global_position(self, lines: IntArray, positions: IntArray) -> IntArray:
        """Positions in the concatenated texts."""
        return self._first_character[lines] + positions

    def _trim(self, pieces: _Flat) -> _Flat:
        """Remove the space before a word from its span; the first space of a word of spaces.

        A span includes the marks after its last character, which a normalizer may compose or drop.
        """
        last_piece = np.flatnonzero(np.append(pieces.begins, True))[1:] - 1
        first_piece = np.flatnonzero(pieces.begins)
        begin, end = (
            self._global_position(pieces.lines[indices], pieces.spans[indices, i])
            for i, indices in enumerate((first_piece, last_piece))
        )
        visible = self._visible[np.searchsorted(self._visible, begin)]
        is_space = (self._characters[begin] == ord(" ")) & (end - begin > 1)
        spans = pieces.spans.copy()
        spans[first_piece, 0] += np.where(visible < end, visible - begin, is_space).astype(np.int32)
        spans[first_piece, 1] = np.maximum(spans[first_piece, 1], spans[first_piece, 0])
        ends = self._global_position(pieces.lines, spans[:, 1])
        following = np.append(self._global_position(pieces.lines, spans[:, 0])[1:], len(self._characters))
        whole = np.minimum(self._whole[np.searchsorted(self._whole, ends)], following)
        spans[:, 1] += np.where(spans[:, 1] > spans[:, 0], np.maximum(whole - ends, 0), 0).astype(np.int32)
        return replace(pieces, spans=spans)
