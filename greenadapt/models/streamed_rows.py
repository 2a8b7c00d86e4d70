"""A torch model that holds few rows of its embedding, and reads the others as batches need them."""

from typing import Any

import numpy as np
import torch

from greenadapt.models.embedding_rows import Rows, RowTable
from greenadapt.storage.arrays import IntArray

_LEAST_TAIL = 1024  # rows


class StreamedRows:
    """Any rows of a table in a model that holds ``rows`` for good, and beyond them only what one batch needs.

    The memory that it takes depends on the batches, not on the table. It is for inference: a batch's rows are gone with
    the next call.
    """

    def __init__(self, model: Any, rows: Rows, table: RowTable) -> None:
        self._layer = model.get_input_embeddings()
        self._rows = rows
        self._table = table

    def compact(self, ids: IntArray) -> IntArray:
        """Load the rows of ``ids`` and say where each now is, int64, in the shape of ``ids``."""
        positions, held = self._rows.find(ids)
        others, places = np.unique(ids[~held], return_inverse=True)
        if len(others):
            self._load(others)
        positions[~held] = len(self._rows) + places
        return positions

    def _load(self, ids: IntArray) -> None:
        weight, begin = self._layer.weight, len(self._rows)
        with torch.no_grad():
            if begin + len(ids) > len(weight):
                tail = max(_LEAST_TAIL, 1 << (len(ids) - 1).bit_length())
                grown = weight.new_zeros((begin + tail, weight.shape[1]))
                grown[:begin] = weight[:begin]
                weight = self._layer.weight = torch.nn.Parameter(grown, requires_grad=weight.requires_grad)
                self._layer.num_embeddings = len(grown)
            weight[begin : begin + len(ids)] = torch.from_numpy(self._table.read(ids)).to(weight.device)
