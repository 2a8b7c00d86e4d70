"""Shared by the engines: parts of the stream, each for one thread; sampling probabilities; padded rows."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from greenadapt.storage.arrays import Array
from greenadapt.vectors.engines import Stream

T = TypeVar("T")
PIECE = 64
"""The most numbers of a row that compiled code processes at once."""
_LONGEST = 9_999  # words of a line in one part; gensim's kernel has room for 10,000
_PART = 50_000  # words; a part takes less than a tenth of a second
_MAX_PARTS = 10_000


@dataclass(frozen=True, eq=False)
class StreamPart:
    """A part of a stream: its lines' ``borders`` in the ids, (n_lines + 1,) int64, and its trained words."""

    number: int
    borders: Array
    before: int
    """Trained words in the parts before it."""
    words: int


def stream_parts(stream: Stream) -> Iterator[StreamPart]:
    """All parts with trained words, in order; each id is in one of them."""
    before = 0
    for number, (begin, end) in enumerate(cuts(stream)):
        first, last = np.searchsorted(stream.lines, [begin, end])
        borders = np.unique(np.concatenate([[begin], stream.lines[first:last], [end]]))
        words = int(np.count_nonzero(np.asarray(stream.ids[begin:end]) < stream.n_words))
        if words:
            yield StreamPart(number, borders, before, words)
        before += words


def cuts(stream: Stream) -> Iterator[tuple[int, int]]:
    """Where the parts begin and end in ``stream.ids``: between lines, or where a long line is cut."""
    n_tokens = len(stream.ids)
    size = max(_PART, n_tokens // _MAX_PARTS)
    begin = 0
    for target in range(size, n_tokens, size):
        line = int(stream.lines[np.searchsorted(stream.lines, target, side="right") - 1])
        end = line + (target - line) // _LONGEST * _LONGEST
        if end > begin:
            yield begin, end
            begin = end
    yield begin, n_tokens


def train_parts(
    parts: Sequence[T],
    train: Callable[[T], tuple[int, float]],
    workers: int,
    advance: Callable[[int, float], None],
    stop: Callable[[], bool],
) -> int:
    """``train`` each of ``parts``, ``workers`` at a time, and ``advance`` by what it returns; returns how many were
    trained, the first ones: all, or those that had begun once ``stop()`` was true.
    """
    pool = ThreadPoolExecutor(workers)
    try:
        trained = [pool.submit(train, part) for part in parts]
        for done in trained:  # in order: what is shown does not depend on which thread is first
            if not done.cancelled():
                advance(*done.result())
                if stop():
                    for one in reversed(trained):  # they begin in order, so that no part after one left out has begun
                        one.cancel()
    finally:
        pool.shutdown(cancel_futures=True)
    return sum(not one.cancelled() for one in trained)


def keep_thresholds(counts: Array, sample: float) -> Array:
    """Subsampling: a word is kept if a random uint32 is at most this number, uint32 ``(n_words,)``.

    The probability is √(t/c) + t/c, at most 1, for count c; t is ``sample`` times all words, as in word2vec.c, or
    gensim's own rule for a ``sample`` of 1 and above.
    """
    t = sample * counts.sum() if sample < 1 else int(sample * (3 + np.sqrt(5)) / 2)
    probability = np.minimum((np.sqrt(counts / t) + 1) * (t / counts), 1) if t else np.ones(len(counts))
    thresholds: Array = (probability * (2**32 - 1)).astype(np.uint32)
    return thresholds


def noise_weights(counts: Array, exponent: float) -> Array:
    """Unnormalized probabilities of words as negatives, count^``exponent``: float64 ``(n_words,)``."""
    weights: Array = counts.astype(np.float64) ** exponent
    return weights


def padded_width(dim: int) -> int:
    """``dim``, or the next multiple of ``PIECE``."""
    return -(-dim // PIECE) * PIECE


def padded(table: Array) -> Array:
    """``table`` (n, dim) itself if it needs no padding, else a copy with zeros at the end of each row, (n,
    padded_width).

    CBOW keeps columns of zeros zero.
    """
    n_rows, dim = table.shape
    width = padded_width(dim)
    if width == dim:
        return table
    copy = np.zeros((n_rows, width), table.dtype)
    copy[:, :dim] = table
    return copy
