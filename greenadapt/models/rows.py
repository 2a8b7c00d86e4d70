"""The rows of an embedding that a model holds, so that memory does not grow with the whole table.

The gradient of a row that no input uses is always zero, and Adam changes it only by decoupled weight decay: training
the rows that occur gives the same result as training the whole table.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.store.arrays import Array, BoolArray, IntArray, release_pages
from greenadapt.tasks.base import Item
from greenadapt.tokenization.files import SpecialIds
from greenadapt.workers import group

_CHUNK = 1 << 20  # ids that are joined at once
# Rows that are read before their pages are released; the kernel maps many pages around each row.
_READ_ROWS = 256


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of the whole embedding that a model holds: ``ids`` (n,) int64, ascending, each once."""

    ids: IntArray

    @classmethod
    def of(cls, views: Iterable[Item], special: SpecialIds) -> "Rows":
        """Rows that occur in any input of either view, those of ``special`` but for the mask, and all up to padding.

        So padding keeps its id, which RoBERTa and MPNet rely on.
        """
        seen = np.union1d(np.arange(special.pad + 1), [special.cls, special.sep, special.unk])
        for arrays in group(_ids_of(views), len, _CHUNK, _CHUNK):
            seen = np.union1d(seen, np.concatenate(arrays))
        return cls(seen.astype(np.int64))

    @classmethod
    def all(cls, n_rows: int) -> "Rows":
        """The whole embedding."""
        return cls(np.arange(n_rows, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def compact(self, ids: IntArray) -> IntArray:
        """Position of each id among these rows, int64, in the shape of ``ids``.

        Raises ``ValueError`` for any other id.
        """
        positions, is_held = self.find(ids)
        if not is_held.all():
            raise ValueError(
                f"the model does not hold row {ids[~is_held].flat[0]}, one of {(~is_held).sum()} asked for"
            )
        return positions

    def find(self, ids: IntArray) -> tuple[IntArray, BoolArray]:
        """The position of each id, as by ``searchsorted``, and whether it is held; both in the shape of ``ids``."""
        positions = np.searchsorted(self.ids, ids).astype(np.int64)
        return positions, self.ids[np.minimum(positions, len(self.ids) - 1)] == ids


@dataclass(frozen=True, eq=False)
class RowTable:
    """The whole embedding of a trained model, whose rows are read from disk.

    The rows ``changed`` are ``values`` (n, dim); all others are those of ``embedding`` (n_rows, dim) times ``shrink``.
    """

    embedding: Array
    changed: Rows
    values: Array
    shrink: float = 1.0

    @classmethod
    def of(cls, embedding: Array) -> "RowTable":
        """An embedding without changes."""
        return cls(embedding, Rows.all(0), embedding[:0])

    def read(self, ids: IntArray) -> Array:
        """The rows of ``ids`` (n,): (n, dim) float32."""
        rows = np.empty((len(ids), self.embedding.shape[1]), np.float32)
        for begin in range(0, len(ids), _READ_ROWS):
            block = slice(begin, begin + _READ_ROWS)
            rows[block] = self.embedding[ids[block]]
            release_pages(self.embedding)
        rows *= np.float32(self.shrink)
        if len(self.changed):
            positions, is_held = self.changed.find(ids)
            rows[is_held] = self.values[positions[is_held]]
        return rows

    def blocks(self, n: int = 1 << 14) -> Iterator[Array]:
        """The whole table in blocks of at most ``n`` rows, float32."""
        for begin in range(0, len(self.embedding), n):
            yield self.read(np.arange(begin, min(begin + n, len(self.embedding))))


def read_table(folder: Path) -> tuple[Checkpoint, RowTable]:
    """The model in a folder of ``write_model``, and its embedding; raises ``InputError`` for NaN or infinity in it."""
    checkpoint = Checkpoint(folder)
    checkpoint.require_finite([checkpoint.embedding_name])
    return checkpoint, RowTable.of(checkpoint.embedding())


def _ids_of(examples: Iterable[Item]) -> Iterator[IntArray]:
    for example in examples:
        features = example.base if example.expanded is example.base else chain(example.base, example.expanded)
        yield from (feature.ids for feature in features)
