"""Which vocabulary strings, and so which embedding rows, added words bring to a tokenizer."""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer, models

from greenadapt.base_vocabulary import BaseVocabulary
from greenadapt.config import OovRule
from greenadapt.corpus.splitter import WORD_CATEGORIES
from greenadapt.errors import InputError
from greenadapt.sequence_table import BoolArray, IntArray

_ASCII_WHITESPACE = frozenset(" \t\n\r")  # byte-level BPE has pre-tokens of spaces, which are no words


@dataclass(frozen=True)
class NewEntries:
    """The new vocabulary strings, one a new embedding row, in the order of their ids.

    ``words`` are the added words and ``word`` (n_entries,) says which of them a row belongs to. With byte-level BPE a
    word has up to two rows, with the leading-space mark (``marked``, (n_entries,)) and without; both get the same
    vector. ``exported`` (n_entries,) are those that the exported tokenizer can find: always the last ones, since the
    library gives an ``AddedToken`` the next free id on loading, behind the vocabulary, whatever id its file says.
    """

    words: list[str]
    word: IntArray
    marked: BoolArray
    exported: BoolArray

    def __len__(self) -> int:
        return len(self.word)

    def surfaces(self) -> list[str]:
        """The word of each entry, without any mark."""
        return [self.words[i] for i in self.word.tolist()]

    def strings(self, vocabulary: BaseVocabulary) -> list[str]:
        """The vocabulary string of each entry."""
        surfaces = self.surfaces()
        marked, unmarked = (vocabulary.entries(surfaces, marked=mark) for mark in (True, False))
        return [a if mark else b for a, b, mark in zip(marked, unmarked, self.marked.tolist(), strict=True)]


def new_forms(words: Sequence[str], tokenizer: Tokenizer) -> BoolArray:
    """Which rows each word needs, (n_words, 2): the word alone, and with byte-level BPE the one without its mark.

    A word that needs none cannot be added: the tokenizer has a row for it, or never finds it in text, as it finds
    ``EGFR`` nowhere if it lower-cases, and ``beta-blocker`` or a literal ``[SEP]`` in no case.
    """
    return _new_forms(list(words), tokenizer, BaseVocabulary(tokenizer))


def addable(forms: BoolArray) -> BoolArray:
    """Which words (n_words,) can get a row, from their ``new_forms``."""
    marked, unmarked = forms.T
    either: BoolArray = marked | unmarked
    return either


def new_entries(
    words: Sequence[str], tokenizer: Tokenizer, oov: OovRule = "base", forms: BoolArray | None = None
) -> NewEntries:
    """The vocabulary strings that ``words``, all of them ``addable``, add to ``tokenizer``.

    ``forms`` are their ``new_forms``, where the caller knows them. Raises ``InputError`` for
    ``oov="greedy"`` with byte-level BPE, ``ValueError`` for a word that is not addable.
    """
    words, vocabulary = list(words), BaseVocabulary(tokenizer)
    if oov == "greedy" and vocabulary.kind == "bytelevel":
        raise InputError("--oov greedy is for WordPiece tokenizers, this one is byte-level BPE", "use --oov base")
    new = _new_forms(words, tokenizer, vocabulary) if forms is None else forms
    if not new.any(axis=1).all():
        word = words[int(np.argmin(new.any(axis=1)))]
        raise ValueError(f"{word!r} is in the base vocabulary, or the tokenizer never finds it")
    if vocabulary.kind == "wordpiece" and oov == "base":
        exportable = _exportable(words, tokenizer)
    else:
        exportable = np.ones(len(words), bool)
    word_of, unmarked = np.nonzero(new)
    order = np.argsort(exportable[word_of], kind="stable")
    word_of = word_of[order].astype(np.int32)
    return NewEntries(words, word_of, unmarked[order] == 0, exportable[word_of])


def _new_forms(words: list[str], tokenizer: Tokenizer, vocabulary: BaseVocabulary) -> BoolArray:
    """For each word whether it needs a row with the leading-space mark, and one without: (n_words, 2)."""
    found, several = np.zeros((2, len(words), 2), bool)
    for column, marked in enumerate((True, False) if vocabulary.kind == "bytelevel" else (True,)):
        pieces = vocabulary.pieces(words, marked=marked)
        several[:, column] = [len(own) > 1 or own == [vocabulary.unk_id] for own in pieces]
        found[:, column] = _found_alone(words, tokenizer, vocabulary, marked=marked)
    has_row = found[:, :1] & ~several[:, :1]  # the base row of a word is that of the marked form
    return found & several & ~has_row


def _found_alone(words: Sequence[str], tokenizer: Tokenizer, vocabulary: BaseVocabulary, *, marked: bool) -> BoolArray:
    """Whether the word (byte-level BPE: after a space, or without one) is exactly one pre-token, itself."""
    # The tokenizer with a vocabulary of whole pre-tokens: one fast call instead of a Python loop over pre-tokens.
    entries = list(vocabulary.entries(words, marked=marked))
    ids = {entry: i for i, entry in enumerate(entries)}
    probe = Tokenizer(models.WordLevel({**ids, " ": len(ids)}, unk_token=" "))
    probe.pre_tokenizer = tokenizer.pre_tokenizer
    if tokenizer.normalizer is not None:
        probe.normalizer = tokenizer.normalizer
    added = [token for _, token in sorted(tokenizer.get_added_tokens_decoder().items())]
    taken = {token.content for token in added}  # these are found in a text before any word is
    probe.add_tokens(added)
    space = " " if marked and vocabulary.kind == "bytelevel" else ""
    encodings = probe.encode_batch_fast([space + word for word in words], add_special_tokens=False)
    alone = (encoding.ids == [ids[entry]] for encoding, entry in zip(encodings, entries, strict=True))
    no_words = (word in taken or word.isspace() or not _ASCII_WHITESPACE.isdisjoint(word) for word in words)
    return np.array([found and not no_word for found, no_word in zip(alone, no_words, strict=True)], bool)


def _exportable(words: Sequence[str], tokenizer: Tokenizer) -> BoolArray:
    r"""Whether a word can be an ``AddedToken``: characters that are ``\w``, and unchanged by the normalizer.

    Such words cannot lie inside one another between word boundaries, so none masks another. The normalizer sets
    spaces around ideographs, and an added token would then swallow them.
    """
    characters = {c for word in words for c in word}
    allowed = {c for c in characters if unicodedata.category(c) in WORD_CATEGORIES}
    normalize: Callable[[str], str] = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    return np.array([allowed.issuperset(word) and normalize(word) == word for word in words], bool)
