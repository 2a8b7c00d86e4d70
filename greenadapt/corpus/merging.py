"""Add lines to a stream of lines in random order, so that the result is in random order too.

The order is that of ``shuffle``: by a random key of a line's number, added lines being numbered after all others. So
the result has the same bytes as if all lines had been shuffled at once.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from greenadapt.corpus.shuffle import line_keys, split_by_tokens
from greenadapt.storage.arrays import Int32Array, Int64Array

_BLOCK_LINES = 1 << 16


class Lines(Protocol):
    """Lines of numbers: ``ids``, int32 ``(n_tokens,)``, and ``lines``, int64 ``(n_lines + 1,)``, where each begins."""

    ids: Int32Array
    lines: Int64Array


def added_positions(n_before: int, n_lines: int, seed: int) -> Int64Array:
    """Where in the order of ``n_lines`` lines those from number ``n_before`` on are, ascending: int64
    ``(n_lines - n_before,)``.
    """
    added = np.sort(line_keys(n_before, n_lines - n_before, seed))
    before = np.zeros(len(added) + 1, np.int64)  # old lines whose key lies before that of an added line
    for first in range(0, n_before, _BLOCK_LINES):
        keys = line_keys(first, min(_BLOCK_LINES, n_before - first), seed)
        before += np.bincount(np.searchsorted(added, keys, "left"), minlength=len(before))
    return np.cumsum(before)[:-1] + np.arange(len(added))


def merged_lines(
    old: Lines, added: Lines, positions: Int64Array, new_number: Int32Array
) -> Iterator[tuple[Int32Array, Int32Array]]:
    """Blocks of lengths and ids of ``old``, renumbered by ``new_number``, with ``added`` at ``positions``."""
    n_lines = len(old.lines) + len(added.lines) - 2
    sources = [_Source(old), _Source(added)]
    for begin in range(0, n_lines, _BLOCK_LINES):
        end = min(begin + _BLOCK_LINES, n_lines)
        is_added = np.zeros(end - begin, bool)
        is_added[positions[slice(*np.searchsorted(positions, [begin, end]))] - begin] = True
        lengths = np.empty(end - begin, np.int32)
        for source, chosen in zip(sources, (~is_added, is_added), strict=True):
            lengths[chosen] = source.next_lengths(int(chosen.sum()))
        first = 0
        for part in split_by_tokens(lengths):
            of_added = np.repeat(is_added[first : first + len(part)], part)
            ids = np.empty(len(of_added), np.int32)
            ids[~of_added] = new_number[sources[0].next_ids(int((~of_added).sum()))]
            ids[of_added] = sources[1].next_ids(int(of_added.sum()))
            yield part, ids
            first += len(part)


class _Source:
    def __init__(self, source: Lines) -> None:
        self._source = source
        self._line = self._token = 0

    def next_lengths(self, n: int) -> Int32Array:
        self._line += n
        return np.diff(self._source.lines[self._line - n : self._line + 1]).astype(np.int32)

    def next_ids(self, n: int) -> Int32Array:
        self._token += n
        return self._source.ids[self._token - n : self._token]
