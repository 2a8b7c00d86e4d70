"""Rows of vectors on a plane, to be looked at."""

import numpy as np

from greenadapt.storage.arrays import Array, FloatArray


def on_plane(rows: Array, also: Array) -> tuple[FloatArray, FloatArray, float]:
    """The coordinates of ``rows`` (n, dim) and ``also`` (m, dim) on the two principal axes of ``rows``: (n, 2), (m, 2).

    And the share of the variance of ``rows`` that lies along these axes (Pearson 1901).
    """
    mean = rows.mean(axis=0)
    _, singular, axes = np.linalg.svd(rows - mean, full_matrices=False)
    plane = axes[:2].T
    total = float(np.square(singular).sum())
    share = float(np.square(singular[:2]).sum()) / total if total else 1.0
    return (rows - mean) @ plane, (also - mean) @ plane, share
