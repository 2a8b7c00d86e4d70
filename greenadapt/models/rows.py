"""The rows of an embedding that a model holds, so that neither training nor inference grows with the whole table.

A row that no input uses has a zero gradient for ever, and Adam leaves it as it is but for decoupled weight decay: to
train the rows that occur is to train the whole table.
"""

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np

from greenadapt.storage.arrays import Array, BoolArray, IntArray
from greenadapt.tasks.base import Input
from greenadapt.tokenization.files import SpecialIds

_CHUNK = 1 << 20  # ids that are looked through at once
# Rows that are read before their pages are given back; the kernel maps many pages around each one.
_READ_ROWS = 256


class RowMap(Protocol):
    """Where a model holds the rows of the whole embedding."""

    def compact(self, ids: IntArray) -> IntArray:
        """Ids of the whole embedding → rows of the model's own, of the same shape, int64."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of the whole embedding that a model holds: ``ids`` (n,) int64, ascending, each once."""

    ids: IntArray

    @classmethod
    def of(cls, views: Iterable[Input], pad_id: int, special: Iterable[int]) -> "Rows":
        """Rows that occur in any input of either view, those of the ``special`` ids, and all up to ``pad_id``.

        The padding keeps its id thereby: RoBERTa and MPNet find padding by it.
        """
        seen = np.union1d(np.arange(pad_id + 1), np.fromiter(special, np.int64))
        for some in _joined(_ids_of(views)):
            seen = np.union1d(seen, some)
        return cls(seen.astype(np.int64))

    @classmethod
    def seen(cls, views: Iterable[Input], special: SpecialIds) -> "Rows":
        """Rows that a model which reads ``views`` needs: those of its special tokens but the mask, too."""
        return cls.of(views, special.pad, (special.cls, special.sep, special.unk))

    @classmethod
    def all(cls, n_rows: int) -> "Rows":
        """The whole embedding."""
        return cls(np.arange(n_rows, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def compact(self, ids: IntArray) -> IntArray:
        """Position of each id among these rows, int64, in the shape of ``ids``.

        Raises ``ValueError`` for an id that is not among them.
        """
        positions, held = self.find(ids)
        if not held.all():
            raise ValueError(f"the model does not hold row {ids[~held].flat[0]}, one of {(~held).sum()} asked for")
        return positions

    def find(self, ids: IntArray) -> tuple[IntArray, BoolArray]:
        """The position at which each id is or would be, and whether it is there; both in the shape of ``ids``."""
        positions = np.searchsorted(self.ids, ids).astype(np.int64)
        return positions, self.ids[np.minimum(positions, len(self.ids) - 1)] == ids


@dataclass(frozen=True, eq=False)
class RowTable:
    """The rows of a trained model's whole embedding, read where they lie on disk.

    A row is that of ``values`` (n, dim) where its id is among ``changed``, else that of ``embedding`` (n_rows, dim)
    times ``shrink``.
    """

    embedding: Array
    changed: Rows
    values: Array
    shrink: float = 1.0

    @classmethod
    def of(cls, embedding: Array) -> "RowTable":
        """An embedding as it is."""
        return cls(embedding, Rows.all(0), embedding[:0])

    def read(self, ids: IntArray) -> Array:
        """The rows of ``ids`` (n,): (n, dim) float32."""
        rows = np.empty((len(ids), self.embedding.shape[1]), np.float32)
        for begin in range(0, len(ids), _READ_ROWS):
            among = slice(begin, begin + _READ_ROWS)
            rows[among] = self.embedding[ids[among]]
            _forget(self.embedding)
        rows *= np.float32(self.shrink)
        if len(self.changed):
            positions, held = self.changed.find(ids)
            rows[held] = self.values[positions[held]]
        return rows

    def blocks(self, n: int = 1 << 14) -> Iterator[Array]:
        """The whole table, (at most ``n``, dim) float32 at once."""
        for begin in range(0, len(self.embedding), n):
            yield self.read(np.arange(begin, min(begin + n, len(self.embedding))))


def _forget(array: Array) -> None:
    """Give the pages of a memory-mapped array back, which count as this process's memory once they were read."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):  # Windows has none
        owner.madvise(mmap.MADV_DONTNEED)


def _ids_of(views: Iterable[Input]) -> Iterator[IntArray]:
    for one in views:
        features = one.base if one.expanded is one.base else chain(one.base, one.expanded)
        yield from (feature.ids for feature in features)


def _joined(arrays: Iterable[IntArray]) -> Iterator[IntArray]:
    """Many arrays at once, end to end."""
    waiting: list[IntArray] = []
    n = 0
    for array in arrays:
        waiting.append(array)
        n += len(array)
        if n >= _CHUNK:
            yield np.concatenate(waiting)
            waiting, n = [], 0
    if waiting:
        yield np.concatenate(waiting)
