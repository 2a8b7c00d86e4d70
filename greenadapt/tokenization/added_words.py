"""The vocabulary entries of added words, and the table that maps words to their ids."""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from greenadapt.config import OovRule
from greenadapt.errors import InputError
from greenadapt.store.arrays import ArrayFile, BoolArray, IntArray, Sequences, offsets_of, write_arrays
from greenadapt.tokenization.vocabulary import BaseVocabulary
from greenadapt.tokenization.words import SPACE, WORD_CATEGORIES

_ASCII_WHITESPACE = frozenset(" \t\n\r")  # byte-level BPE has pre-tokens of spaces, which are not words


@dataclass(frozen=True)
class NewEntries:
    """The new vocabulary strings, one per new embedding row, in the order of their ids.

    ``words`` are the added words, and ``word`` (n_entries,) is the index of each row's word. With byte-level BPE a word
    has up to two rows, with the leading-space mark (``marked``, (n_entries,)) and without; both get the same vector.
    With SentencePiece a word has one row for both forms; if the model reads whole texts, only for the marked form.
    ``exported`` (n_entries,) marks the entries that the exported tokenizer can find. They are always the last entries,
    since the library ignores the id of an ``AddedToken`` on loading and assigns the next free id.
    """

    words: list[str]
    word: IntArray
    marked: BoolArray
    exported: BoolArray

    def __len__(self) -> int:
        return len(self.word)

    def surfaces(self) -> list[str]:
        """The word of each entry, without the mark."""
        return [self.words[i] for i in self.word.tolist()]

    def strings(self, vocabulary: BaseVocabulary) -> list[str]:
        """The vocabulary string of each entry."""
        surfaces = self.surfaces()
        marked, unmarked = (vocabulary.entries(surfaces, marked=mark) for mark in (True, False))
        return [a if mark else b for a, b, mark in zip(marked, unmarked, self.marked.tolist(), strict=True)]


def new_forms(words: Sequence[str], vocabulary: BaseVocabulary) -> BoolArray:
    """Which rows each word needs, (n_words, 2): with the mark, and with byte-level BPE also without it.

    A word that needs no row cannot be added: the tokenizer has a row for it, or never produces it, such as ``EGFR`` if
    it lower-cases, ``beta-blocker``, or a literal ``[SEP]``.
    """
    is_alone, is_cut = np.zeros((2, len(words), 2), bool)
    forms = (True, False) if vocabulary.kind == "bytelevel" else (True,)
    for column, marked in enumerate(forms):
        pieces = vocabulary.pieces(words, marked=marked)
        is_cut[:, column] = list(map(vocabulary.is_cut, words, pieces))
    cut = np.flatnonzero(is_cut.any(axis=1))
    for column, marked in enumerate(forms):
        is_alone[cut, column] = _is_alone([words[i] for i in cut.tolist()], vocabulary, marked=marked)
    has_row = is_alone[:, :1] & ~is_cut[:, :1]  # the marked form has the base row of a word
    return is_alone & is_cut & ~has_row


def new_entries(
    words: Sequence[str], vocabulary: BaseVocabulary, oov: OovRule = "base", forms: BoolArray | None = None
) -> NewEntries:
    """The entries that ``words``, which all need a row, add to ``vocabulary``.

    ``forms`` are their ``new_forms``, computed if ``None``. Raises ``InputError`` for ``oov="greedy"`` with a tokenizer
    that is not WordPiece.
    """
    words = list(words)
    if oov == "greedy" and vocabulary.kind != "wordpiece":
        name = {"bytelevel": "byte-level BPE", "sentencepiece": "SentencePiece"}[vocabulary.kind]
        raise InputError(f"--oov greedy is for WordPiece tokenizers, this one is {name}", "use --oov base")
    forms_of_words = new_forms(words, vocabulary) if forms is None else forms
    if vocabulary.at_spaces:  # the library would keep the id of a word that is also a piece
        exportable = np.array([vocabulary.tokenizer.token_to_id(word) is None for word in words], bool)
    elif vocabulary.kind == "wordpiece" and oov == "base":
        exportable = _are_exportable(words, vocabulary.tokenizer)
    else:
        exportable = np.ones(len(words), bool)
    word_of, unmarked = np.nonzero(forms_of_words)
    order = np.argsort(exportable[word_of], kind="stable")
    word_of = word_of[order].astype(np.int32)
    return NewEntries(words, word_of, unmarked[order] == 0, exportable[word_of])


def _is_alone(words: Sequence[str], vocabulary: BaseVocabulary, *, marked: bool) -> BoolArray:
    """Whether each word, ``marked`` after a space, is exactly one pre-token, (n_words,)."""
    # A tokenizer with a vocabulary of whole pre-tokens avoids a Python loop over pre-tokens.
    tokenizer, entries = vocabulary.tokenizer, list(vocabulary.entries(words, marked=marked))
    ids = {entry: i for i, entry in enumerate(entries)}
    probe = Tokenizer(models.WordLevel({**ids, " ": len(ids)}, unk_token=" "))
    probe.pre_tokenizer = tokenizer.pre_tokenizer
    if tokenizer.normalizer is not None:
        probe.normalizer = tokenizer.normalizer
    added = [token for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    special_texts = {token.content for token in added}  # matched before any word
    probe.add_tokens(added)
    before = " " if marked and vocabulary.kind != "wordpiece" else ""
    if vocabulary.whole_texts:  # the number of marks at the beginning of a text varies
        steps = [] if tokenizer.pre_tokenizer is None else [tokenizer.pre_tokenizer]
        probe.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.Split(SPACE, "merged_with_next")])
        before = "a "
    encodings = probe.encode_batch_fast([before + word for word in words], add_special_tokens=False)
    n_before = int(vocabulary.whole_texts)
    are_single = (encoding.ids[n_before:] == [ids[entry]] for encoding, entry in zip(encodings, entries, strict=True))
    no_words = (word in special_texts or word.isspace() or not _ASCII_WHITESPACE.isdisjoint(word) for word in words)
    return np.array([is_single and not no_word for is_single, no_word in zip(are_single, no_words, strict=True)], bool)


def _are_exportable(words: Sequence[str], tokenizer: Tokenizer) -> BoolArray:
    r"""Whether a word can be an ``AddedToken``: characters that are ``\w``, and unchanged by the normalizer.

    No such word contains another between word boundaries, so none masks another. Ideographs are excluded because the
    normalizer inserts spaces around them, which the added token would consume.
    """
    characters = {c for word in words for c in word}
    allowed = {c for c in characters if unicodedata.category(c) in WORD_CATEGORIES}
    normalize: Callable[[str], str] = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    return np.array([allowed.issuperset(word) and normalize(word) == word for word in words], bool)


WORDS_FILE = "words.safetensors"


def has_added_words(folder: Path) -> bool:
    """Whether a model's folder has an expanded tokenization."""
    return (folder / WORDS_FILE).is_file()


@dataclass(frozen=True)
class AddedWords:
    """The added words of an expanded model, found by base pieces.

    ``pieces`` are the base pieces of each entry, int32, at least two; an entry of which the base tokenizer makes only
    ``[UNK]`` is found by its text, and ``unknown`` (n_unknown,) are these entries. With SentencePiece an entry has
    pieces with the space mark, and pieces without it, possibly a single one; ``owners`` (n_pieces,) maps them to their
    entries, and is ``None`` if each entry has one list of pieces. Entry ``i`` has id ``first_id + i``.
    """

    first_id: int
    oov: OovRule
    pieces: Sequences
    unknown: IntArray
    _text: Sequences
    owners: IntArray | None = None

    def __len__(self) -> int:
        return len(self._text)

    def all_surfaces(self) -> list[str]:
        """The words of all new entries."""
        return _decode(self._text)

    def find(self, pieces: Sequences) -> IntArray:
        """The new id of each word (n_words,) by its base pieces, int32; -1 if none."""
        return np.array([self._id_of_pieces.get(key, -1) for key in pieces.as_bytes()], np.int64)

    def find_surfaces(self, words: Sequence[str]) -> IntArray:
        """The new id of each normalised word (n_words,) that is ``[UNK]`` to the base tokenizer; -1 if none."""
        return np.array([self._id_of_surface.get(word, -1) for word in words], np.int64)

    @cached_property
    def _id_of_pieces(self) -> dict[bytes, int]:
        entries = np.arange(len(self)) if self.owners is None else self.owners
        return dict(zip(self.pieces.as_bytes(), (entries + self.first_id).tolist(), strict=True))

    @cached_property
    def _id_of_surface(self) -> dict[str, int]:
        return dict(zip(_decode(self._text.take(self.unknown)), (self.unknown + self.first_id).tolist(), strict=True))

    @classmethod
    def build(cls, entries: NewEntries, vocabulary: BaseVocabulary, first_id: int, oov: OovRule) -> "AddedWords":
        """Build the table of ``entries``, with ids from ``first_id`` on."""
        surfaces = entries.surfaces()
        pieces = vocabulary.pieces(surfaces)
        if not entries.marked.all():
            unmarked = vocabulary.pieces(surfaces, marked=False)
            pieces = [a if mark else b for a, b, mark in zip(pieces, unmarked, entries.marked.tolist(), strict=True)]
        unknown = np.flatnonzero([ids == [vocabulary.unk_id] for ids in pieces]).astype(np.int32)
        text, owners = _bytes_of(surfaces), None
        if vocabulary.at_spaces:
            inner = vocabulary.pieces(surfaces, marked=False)
            has_inner = [i for i, ids in enumerate(inner) if vocabulary.is_one_word(ids)]
            owners = np.array([*range(len(pieces)), *has_inner], np.int32)
            pieces = [*pieces, *(inner[i] for i in has_inner)]
        return cls(first_id, oov, Sequences.of(pieces), unknown, text, owners)

    @classmethod
    def empty(cls, first_id: int) -> "AddedWords":
        """An empty table, for a model that is not expanded."""
        return cls(first_id, "base", Sequences.of([]), np.zeros(0, np.int32), Sequences.of([]))

    def write(self, path: Path) -> None:
        """Write the table as one safetensors file."""
        write_arrays(
            path,
            {
                "piece_offsets": self.pieces.offsets,
                "text_offsets": self._text.offsets,
                "pieces": self.pieces.values,
                "unknown": self.unknown,
                "text": self._text.values,
                **({} if self.owners is None else {"owners": self.owners}),
            },
            {"first_id": str(self.first_id), "oov": self.oov},
        )

    @classmethod
    def open(cls, path: Path) -> "AddedWords":
        """Open a table on disk; raises ``InputError`` for another kind of file."""
        file = ArrayFile(path)
        try:
            first_id, oov = int(file.metadata["first_id"]), file.metadata["oov"]
            return cls(
                first_id,
                "greedy" if oov == "greedy" else "base",
                Sequences(file["pieces"], file["piece_offsets"]),
                file["unknown"],
                Sequences(file["text"], file["text_offsets"]),
                file["owners"] if "owners" in file.names else None,
            )
        except (KeyError, ValueError) as error:
            raise InputError(f"{path} is not a table of added words ({error!r})", "run expand again") from None


def _decode(text: Sequences) -> list[str]:
    return [key.decode(errors="replace") for key in text.as_bytes()]


def _bytes_of(words: Sequence[str]) -> Sequences:
    encoded = [word.encode() for word in words]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return Sequences(np.frombuffer(b"".join(encoded), np.uint8), offsets_of(lengths))
