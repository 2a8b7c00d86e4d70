"""Rows that end where a piece of ``lanes.py`` does."""

import numpy as np

from greenadapt.storage.arrays import Array

PIECE = 64
"""Numbers of a row that compiled code works on at once, at most."""


def padded_width(dim: int) -> int:
    """``dim``, or the next multiple of ``PIECE``."""
    return -(-dim // PIECE) * PIECE


def padded(table: Array) -> Array:
    """``table`` (n, dim) itself where no row needs it, else a copy with zeros at the end of each, (n, padded_width).

    Whatever CBOW does to a table, columns of zeros stay zeros.
    """
    n_rows, dim = table.shape
    width = padded_width(dim)
    if width == dim:
        return table
    copy = np.zeros((n_rows, width), table.dtype)
    copy[:, :dim] = table
    return copy
