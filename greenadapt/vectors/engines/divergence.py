"""Detect diverged training, by the same rule for every engine."""

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.errors import InputError
from greenadapt.storage.arrays import Array
from greenadapt.vectors.engines import Stream, Weights

_LIMIT = 6  # of a score; at -6 and below, a word is almost impossible, and neither engine learns from it
_LOST_SHARE = 0.25  # of words with such scores: at most 0.1 in normal training, 0.5 and more after divergence
_FEW = 100
_SAMPLE = 4000  # words; a tenth of a second
_ROWS = 1 << 14  # of a table that are checked at once


def require_learning(epoch: int, learned: int, lost: int) -> None:
    """Raise ``InputError`` if, of ``learned`` words, too many are ``lost``: their scores are -6 or less."""
    if lost > max(_LOST_SHARE * learned, _FEW):
        raise _diverged(epoch, f"{lost:,} of {learned:,} words are almost impossible in their own context")


def require_finite(epoch: int, table: Array) -> None:
    """Raise ``InputError`` if ``table`` ``(n, dim)`` has a NaN or an infinite value."""
    if not all(np.isfinite(table[begin : begin + _ROWS]).all() for begin in range(0, len(table), _ROWS)):
        raise _diverged(epoch, "the vectors are not finite any more")


def sample_lost(stream: Stream, weights: Weights, config: W2VConfig) -> tuple[int, int]:
    """How many words, sampled evenly, have a context, and how many of them a score of -6 or less in it.

    For an engine that does not count them while it trains. Contexts are whole windows.
    """
    learned, lost = 0, 0
    positions = np.linspace(0, len(stream.ids) - 1, min(_SAMPLE, len(stream.ids))).astype(np.int64)
    lines = np.searchsorted(stream.lines, positions, side="right")
    for at, line in zip(positions.tolist(), lines.tolist(), strict=True):
        begin, end = max(stream.lines[line - 1], at - config.window), min(stream.lines[line], at + config.window + 1)
        context = np.delete(stream.ids[begin:end], at - begin)
        context = context[context < stream.n_words]
        if stream.ids[at] < stream.n_words and len(context):
            learned += 1
            lost += not _score(weights, context, int(stream.ids[at]), config) > -_LIMIT
    return learned, lost


def _score(weights: Weights, context: Array, word: int, config: W2VConfig) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        hidden = weights.input[context].sum(axis=0, dtype=np.float64)
        return float(hidden @ weights.output[word].astype(np.float64)) / (len(context) if config.cbow_mean else 1)


def _diverged(epoch: int, why: str) -> InputError:
    return InputError(f"training diverged in epoch {epoch + 1}: {why}", "use a lower --alpha")
