"""The training text as numbers, cut into parts; the learning rate, thresholds, and checks for divergence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from greenadapt.config import MIN_ALPHA, W2VConfig
from greenadapt.errors import InputError
from greenadapt.store.arrays import Array, FloatArray, row_blocks


class Weights(NamedTuple):
    """The two tables of word2vec, float32, ``(n_words, dim)`` each; training changes them in place."""

    input: Array
    output: Array


@dataclass(frozen=True)
class Stream:
    """The training text as word numbers; 0 is the most frequent word."""

    ids: Array
    """int32, ``(n_tokens,)``; numbers from ``len(counts)`` on are words too rare to train."""
    lines: Array
    """int64, ``(n_lines + 1,)``: offsets of the lines in ``ids``, and the end."""
    counts: Array
    """int64, ``(n_words,)``: counts of the trained words in ``ids``, or in a text that includes ``ids``."""
    occurrences: int | None = None
    """Number of trained words in ``ids``, if ``counts`` are of a longer text."""

    @property
    def n_words(self) -> int:
        """Number of trained words."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Occurrences of trained words in one epoch."""
        return int(self.counts.sum()) if self.occurrences is None else self.occurrences


Advance = Callable[[int, float], None]
"""Called with a number of trained words and the learning rate."""
Stop = Callable[[], bool]
"""Whether to stop after the current part."""


def learning_rate(config: W2VConfig, epoch: int, progress: float) -> float:
    """Linear from ``alpha`` to 0.0001 over all epochs; ``progress`` is the completed share of this epoch."""
    return config.alpha - (config.alpha - MIN_ALPHA) * (epoch + progress) / config.epochs


PIECE = 64
"""Numbers of a row that compiled code processes at once, at most."""
_LONGEST = 9_999  # words of a line in one part
_PART = 50_000  # words; a part takes less than 0.1 seconds
_MAX_PARTS = 10_000


@dataclass(frozen=True, eq=False)
class StreamPart:
    """A part of a stream: offsets of its lines in the ids, ``borders`` (n_lines + 1,) int64, and its trained words."""

    number: int
    borders: Array
    before: int
    """Number of trained words before this part."""
    words: int


def stream_parts(stream: Stream) -> Iterator[StreamPart]:
    """Yield all parts with trained words, in order."""
    before = 0
    for number, (begin, end) in enumerate(cuts(stream)):
        begin_line, end_line = np.searchsorted(stream.lines, [begin, end])
        borders = np.unique(np.concatenate([[begin], stream.lines[begin_line:end_line], [end]]))
        words = int(np.count_nonzero(np.asarray(stream.ids[begin:end]) < stream.n_words))
        if words:
            yield StreamPart(number, borders, before, words)
        before += words


def cuts(stream: Stream) -> Iterator[tuple[int, int]]:
    """Yield begin and end of parts in ``stream.ids``, between lines or within long lines."""
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


def keep_thresholds(counts: Array, sample: float) -> Array:
    """Subsampling thresholds: a word is kept if a random uint32 is at most its threshold, uint32 ``(n_words,)``.

    The probability is √(t/c) + t/c, at most 1, for count c; t is ``sample`` times all words, as in word2vec.c, or
    follows gensim's rule for ``sample`` of at least 1.
    """
    t = sample * counts.sum() if sample < 1 else int(sample * (3 + np.sqrt(5)) / 2)
    probability = np.minimum((np.sqrt(counts / t) + 1) * (t / counts), 1) if t else np.ones(len(counts))
    return np.asarray((probability * (2**32 - 1)).astype(np.uint32))


NOISE_EXPONENT = 0.75
"""Exponent of the word counts in the distribution of negatives, as in word2vec."""


def noise_weights(counts: Array) -> Array:
    """Unnormalized probabilities of words as negatives, count^0.75: float64 ``(n_words,)``."""
    return np.asarray(counts.astype(np.float64) ** NOISE_EXPONENT)


def padded_width(dim: int) -> int:
    """``dim``, or the next multiple of ``PIECE``."""
    return -(-dim // PIECE) * PIECE


_LINE = 64  # bytes of a line of the processor's cache


def aligned_zeros(shape: tuple[int, int]) -> FloatArray:
    """Zeros, float32, that begin on a line of the cache: in numpy's own arrays each load of 64 bytes straddles two."""
    size = 4 * shape[0] * shape[1]
    memory = np.zeros(size + _LINE, np.uint8)
    begin = -memory.ctypes.data % _LINE
    return memory[begin : begin + size].view(np.float32).reshape(shape)


def pad_rows(table: Array) -> Array:
    """Pad the rows of ``table`` (n, dim) with zeros to (n, padded_width); returns ``table`` if it needs no padding.

    Training with CBOW does not change columns of zeros.
    """
    n, dim = table.shape
    width = padded_width(dim)
    if width == dim:
        return table
    wide = aligned_zeros((n, width))
    wide[:, :dim] = table
    return wide


_LOST_SHARE = 0.25
"""Training has diverged if a larger share of words scores -6 or less, where nothing is learned. The share is at most
0.1 in normal training, and 0.5 or more after divergence."""
_FEW = 100


def require_learning(epoch: int, learned: int, n_lost: int) -> None:
    """Raise ``InputError`` if too many of ``learned`` words, ``n_lost``, are lost, with scores of -6 or less."""
    if n_lost > max(_LOST_SHARE * learned, _FEW):
        raise _divergence(epoch, f"{n_lost:,} of {learned:,} words are almost impossible in their own context")


def require_finite(epoch: int, table: Array) -> None:
    """Raise ``InputError`` if ``table`` ``(n, dim)`` has a NaN or an infinite value."""
    if not all(np.isfinite(block).all() for block in row_blocks(table)):
        raise _divergence(epoch, "the vectors are not finite any more")


def _divergence(epoch: int, why: str) -> InputError:
    return InputError(f"training diverged in epoch {epoch + 1}: {why}", "use a lower --alpha")
