"""Find sequences of integers by their content, many at once, in arrays that can stay on disk."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from greenadapt.storage.arrays import SPLITMIX_STEP, BoolArray, IntArray, UInt64Array, mixed, offsets_of


@dataclass(frozen=True)
class Sequences:
    """``n`` sequences end to end: ``values`` (total,), and ``offsets`` (n + 1,) where each begins."""

    values: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, lists: list[list[int]]) -> "Sequences":
        """The given lists as one array of int32."""
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        values = np.fromiter((value for one in lists for value in one), np.int32, int(lengths.sum()))
        return cls(values, offsets_of(lengths))

    def check(self) -> None:
        """Raise ``ValueError`` if these are not sequences."""
        if self.values.ndim != 1 or self.offsets.ndim != 1 or not len(self.offsets):
            raise ValueError(f"values of {self.values.ndim} axes and offsets of shape {self.offsets.shape}")
        if not all(np.issubdtype(array.dtype, np.integer) for array in (self.values, self.offsets)):
            raise ValueError(f"values are {self.values.dtype} and offsets {self.offsets.dtype}, not whole numbers")
        ends = int(self.offsets[0]), int(self.offsets[-1])
        if ends != (0, len(self.values)) or (self.offsets[1:] < self.offsets[:-1]).any():
            raise ValueError(f"offsets do not go from 0 to {len(self.values):,}")

    def take(self, which: IntArray | BoolArray) -> "Sequences":
        """The sequences ``which`` (m,), copied end to end."""
        begins, lengths = self.offsets[:-1][which], np.diff(self.offsets)[which]
        offsets = offsets_of(lengths)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Sequences(self.values[np.repeat(begins, lengths) + within], offsets)


def hash_sequences(sequences: Sequences) -> UInt64Array:
    """A 64-bit hash of each sequence (n,): the sum of its values, each mixed with its place."""
    offsets = sequences.offsets
    places = np.arange(len(sequences.values)) - np.repeat(offsets[:-1], np.diff(offsets))
    x = sequences.values.astype(np.uint64) + np.uint64(1)
    x += places.astype(np.uint64) * SPLITMIX_STEP
    sums = np.zeros(len(x) + 1, np.uint64)
    np.cumsum(mixed(x), out=sums[1:])
    return sums[offsets[1:]] - sums[offsets[:-1]]


@dataclass(frozen=True)
class SequenceTable:
    """The position of each of ``n`` distinct sequences, found by hash and compared value by value.

    ``hashes`` (n,) are sorted, ``order`` (n,) has the sequence of each. Nothing is copied or indexed on
    construction, so the arrays may be memory-mapped.
    """

    stored: Sequences
    hashes: UInt64Array
    order: IntArray
    hash_of: Callable[[Sequences], UInt64Array] = hash_sequences

    @classmethod
    def build(cls, stored: Sequences, hash_of: Callable[[Sequences], UInt64Array] = hash_sequences) -> "SequenceTable":
        """Hash and sort ``stored``."""
        hashes = hash_of(stored)
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(stored, hashes[order], order, hash_of)

    def check(self) -> None:
        """Raise ``ValueError`` if sequences would be looked up where there are none."""
        self.stored.check()
        n = len(self.stored)
        if self.hashes.shape != (n,) or self.order.shape != (n,) or self.hashes.dtype != np.uint64:
            raise ValueError(f"hashes of shape {self.hashes.shape}, order of {self.order.shape}, {n:,} sequences")
        if not np.issubdtype(self.order.dtype, np.integer):
            raise ValueError(f"the order is {self.order.dtype}, not whole numbers")
        if n and not 0 <= int(self.order.min()) <= int(self.order.max()) < n:
            raise ValueError(f"the order names a sequence that is not one of {n:,}")

    def find(self, wanted: Sequences) -> IntArray:
        """For each sequence of ``wanted`` (m,) its position among the stored ones, -1 if absent."""
        hashes = self.hash_of(wanted)
        found = np.full(len(wanted), -1, np.int64)
        slots = np.searchsorted(self.hashes, hashes)
        pending = np.arange(len(wanted))
        while True:
            pending = pending[slots[pending] < len(self.hashes)]
            pending = pending[self.hashes[slots[pending]] == hashes[pending]]
            if not len(pending):
                return found
            candidates = self.order[slots[pending]]
            equal = _equal(self.stored, candidates, wanted, pending)
            found[pending[equal]] = candidates[equal]
            pending = pending[~equal]  # hash collision with another sequence: try the next slot
            slots[pending] += 1


def _equal(left: Sequences, i: IntArray, right: Sequences, j: IntArray) -> BoolArray:
    """Whether sequence ``i[k]`` of ``left`` is sequence ``j[k]`` of ``right``, for each ``k``."""
    equal: BoolArray = left.offsets[i + 1] - left.offsets[i] == right.offsets[j + 1] - right.offsets[j]
    same_length = np.flatnonzero(equal)
    ours, theirs = left.take(i[same_length]), right.take(j[same_length])
    differs = offsets_of(ours.values != theirs.values)
    equal[same_length] = differs[ours.offsets[1:]] == differs[ours.offsets[:-1]]
    return equal
