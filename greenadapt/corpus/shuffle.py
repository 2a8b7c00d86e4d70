"""Lines of word numbers on disk: read in blocks, and put in random order with bounded memory.

A line's position is determined by a random key of its index, and the lines are sorted by key, one range of keys at a
time; so neither memory nor the number of processes changes the order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from greenadapt.corpus.stream import gather
from greenadapt.storage.arrays import SPLITMIX_STEP, Array, Int32Array, UInt64Array, mixed

_BLOCK_LINES = 1 << 16
_BLOCK_TOKENS = 1 << 20
_KEYED = np.dtype([("key", "<u8"), ("length", "<i4")])


@dataclass(frozen=True)
class LineFile:
    """Lines of numbers in two plain files: all numbers, int32, and the number of them in each line, int32."""

    ids: Path
    lengths: Path

    @property
    def n_tokens(self) -> int:
        """How many numbers have been written."""
        return self.ids.stat().st_size // 4

    def remove(self) -> None:
        """Remove both files."""
        self.ids.unlink(missing_ok=True)
        self.lengths.unlink(missing_ok=True)

    def blocks(self) -> Iterator[tuple[int, Int32Array, Int32Array]]:
        """Consecutive lines, about ``_BLOCK_TOKENS`` numbers at a time: index of the first, lengths, ids."""
        with open(self.ids, "rb") as ids, open(self.lengths, "rb") as lengths:
            first = 0
            while len(block := np.fromfile(lengths, np.int32, _BLOCK_LINES)):
                for part in split_by_tokens(block):
                    yield first, part, np.fromfile(ids, np.int32, int(part.sum(dtype=np.int64)))
                    first += len(part)


def split_by_tokens(lengths: Int32Array) -> Iterator[Int32Array]:
    """Consecutive parts of ``lengths``, ``(n_lines,)``, that sum to at most ``_BLOCK_TOKENS`` or are one line."""
    ends = np.cumsum(lengths, dtype=np.int64)
    begin = 0
    while begin < len(lengths):
        before = ends[begin] - lengths[begin]
        end = max(begin + 1, int(np.searchsorted(ends, before + _BLOCK_TOKENS, "right")))
        yield lengths[begin:end]
        begin = end


def line_keys(first: int, n: int, seed: int) -> UInt64Array:
    """Random keys, uint64 ``(n,)``, of the lines from ``first`` on."""
    key = np.arange(first + 1, first + n + 1, dtype=np.uint64) * SPLITMIX_STEP
    key += np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    return mixed(key)


class Shuffle:
    """Puts lines in random order through one temporary file per range of keys.

    ``n_buckets`` ranges are made in ``folder``; one at a time is in memory. Lines are numbered from ``first`` on.
    """

    def __init__(self, folder: Path, seed: int, n_buckets: int, first: int = 0) -> None:
        self._folder = folder
        self._seed = seed
        self._n_buckets = n_buckets
        self._first = first
        self.n_lines = 0
        self.n_tokens = 0

    def add(self, lengths: Int32Array, ids: Int32Array) -> None:
        """Add lines: their numbers of ids, ``(n_lines,)``, and the ids, ``(sum of lengths,)``."""
        keys = line_keys(self._first + self.n_lines, len(lengths), self._seed)
        self.n_lines += len(lengths)
        self.n_tokens += len(ids)
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        bucket = (keys >> np.uint64(32)) * np.uint64(self._n_buckets) >> np.uint64(32)
        for number in np.unique(bucket).tolist():
            chosen = np.flatnonzero(bucket == number)
            keyed = np.empty(len(chosen), _KEYED)
            keyed["key"], keyed["length"] = keys[chosen], lengths[chosen]
            _append(self._keyed_file(number), keyed)
            _append(self._ids_file(number), gather(ids, starts[chosen], lengths[chosen]))

    def lines(self) -> Iterator[tuple[Int32Array, Int32Array]]:
        """All lines, sorted by key, in blocks of lengths and ids; temporary files are deleted as they are read."""
        return ((lengths, ids) for _, lengths, ids in self.keyed_lines())

    def keyed_lines(self) -> Iterator[tuple[UInt64Array, Int32Array, Int32Array]]:
        """As ``lines``, with the keys before the lengths."""
        for number in range(self._n_buckets):
            if not self._keyed_file(number).exists():
                continue
            keyed = np.fromfile(self._keyed_file(number), _KEYED)
            ids = np.fromfile(self._ids_file(number), np.int32)
            self._keyed_file(number).unlink()
            self._ids_file(number).unlink()
            order = np.argsort(keyed["key"], kind="stable")
            starts = (np.cumsum(keyed["length"], dtype=np.int64) - keyed["length"])[order]
            keys, begin = keyed["key"][order], 0
            for lengths in split_by_tokens(keyed["length"][order]):
                chosen = slice(begin, begin + len(lengths))
                yield keys[chosen], lengths, gather(ids, starts[chosen], lengths)
                begin += len(lengths)

    def _ids_file(self, number: int) -> Path:
        return self._folder / f"bucket-{number}.ids"

    def _keyed_file(self, number: int) -> Path:
        return self._folder / f"bucket-{number}.lines"


def write_array(file: BinaryIO, array: Array) -> None:
    """Write the bytes of a contiguous array; unlike numpy's ``tofile``, raises ``OSError`` on a full disk."""
    file.write(array.data)


def _append(path: Path, array: Array) -> None:
    with open(path, "ab") as file:
        write_array(file, array)
