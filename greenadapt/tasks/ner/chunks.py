"""Where a sentence is cut into what a model reads at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenadapt.storage.arrays import IntArray, offsets_of


@dataclass(frozen=True)
class Limits:
    """What a chunk may hold: ``words`` (``None``: any number), and ``pieces`` in each tokenization."""

    words: int | None
    pieces: int


def cut(sizes: Sequence[IntArray], tags: Sequence[str] | None, limits: Limits) -> list[tuple[int, int]]:
    """Chunks of a sentence, each its first word and the one after its last; end to end they are the sentence.

    ``sizes`` are the pieces of each word, (n,) for each tokenization and none above ``limits.pieces``. A chunk is as
    long as the limits allow; given IOB2 ``tags`` (n,), it ends earlier where the next word's tag is I, unless the
    entity began with the chunk and is longer than one (Poerner et al. 2020, section 4.2: chunks that cut no span).
    """
    n_words = len(sizes[0])
    if (limits.words is None or n_words <= limits.words) and all(one.sum() <= limits.pieces for one in sizes):
        return [(0, n_words)] if n_words else []
    reach = _reach(sizes, limits).tolist()
    chunks = []
    begin = 0
    while begin < n_words:
        end = reach[begin]
        chunks.append((begin, _step_back(tags, begin, end) if tags is not None and end < n_words else end))
        begin = chunks[-1][1]
    return chunks


def _reach(sizes: Sequence[IntArray], limits: Limits) -> IntArray:
    """The furthest end of a chunk from each word, (n,)."""
    n_words = len(sizes[0])
    words = n_words if limits.words is None else limits.words
    reach: np.ndarray[Any, np.dtype[np.int64]] = np.minimum(np.arange(n_words) + words, n_words)
    for one in sizes:
        before = offsets_of(one)
        reach = np.minimum(reach, np.searchsorted(before, before[:-1] + limits.pieces, "right") - 1)
    return reach


def _step_back(tags: Sequence[str], begin: int, end: int) -> int:
    """``end``, or the begin of the entity that goes on there, if a chunk is left before it."""
    back = end
    while back > begin and tags[back].startswith("I-"):
        back -= 1
    return back if back > begin else end
