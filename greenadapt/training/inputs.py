"""Inputs of a model that go through it together, before they are padded."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from greenadapt.arrays import Array
from greenadapt.features import Feature
from greenadapt.sequence_table import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Inputs:
    """b inputs end to end: ``ids`` and ``types`` (total,), the segment of each piece, and ``lengths`` (b,)."""

    ids: IntArray
    types: IntArray
    lengths: IntArray

    @classmethod
    def of(cls, features: Sequence[Feature]) -> "Inputs":
        """The inputs that ``features`` are, of which there may be none."""
        if not features:
            return cls(*(np.zeros(0, np.int32) for _ in range(3)))
        ids, types = (np.concatenate([getattr(one, name) for one in features]) for name in ("ids", "types"))
        return cls(ids, types, np.array([len(one) for one in features]))

    @cached_property
    def is_piece(self) -> BoolArray:
        """(b, longest): where there is no padding, once the inputs lie below each other."""
        is_piece: BoolArray = np.arange(self.lengths.max(initial=0)) < self.lengths[:, None]
        return is_piece

    @property
    def mask(self) -> torch.Tensor:
        """``is_piece`` as models want it: (b, longest) int64."""
        return torch.from_numpy(self.is_piece.astype(np.int64))

    def padded(self, values: Array, fill: int) -> torch.Tensor:
        """``values`` (total,) below each other, (b, longest) int64, with ``fill`` behind the shorter ones."""
        array = np.full(self.is_piece.shape, fill, np.int64)
        array[self.is_piece] = values
        return torch.from_numpy(array)
