"""The words of a tokenization, and those that a vocabulary can get."""

from collections.abc import Sequence

import numpy as np

from greenadapt.tokenization.added_words import new_forms
from greenadapt.tokenization.dual_tokenizer import Pieces
from greenadapt.tokenization.vocabulary import BaseVocabulary


def _parts(pieces: Pieces) -> list[slice]:
    starts = np.flatnonzero(np.diff(pieces.words, prepend=-1)).tolist()
    return [slice(*bounds) for bounds in zip(starts, [*starts[1:], len(pieces.words)], strict=False)]


def grouped(pieces: Pieces) -> list[list[int]]:
    """The ids of the pieces of each word."""
    return [pieces.ids[part].tolist() for part in _parts(pieces)]


def extents(pieces: Pieces) -> list[tuple[int, int]]:
    """The first character of each word, and the character after its last."""
    return [(int(pieces.spans[part][0, 0]), int(pieces.spans[part][-1, 1])) for part in _parts(pieces)]


def addable_words(words: Sequence[str], vocabulary: BaseVocabulary) -> list[str]:
    """Those of ``words`` that can get a row."""
    is_addable = new_forms(words, vocabulary).any(axis=1).tolist()
    return [word for word, can_get_row in zip(words, is_addable, strict=True) if can_get_row]
