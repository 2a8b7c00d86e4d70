"""Rows of vectors on a plane, to be looked at."""

import numpy as np

from greenadapt.storage.arrays import Array, FloatArray


def on_plane(rows: Array, also: Array) -> tuple[FloatArray, FloatArray, float]:
    """The coordinates of ``rows`` (n, dim) and ``also`` (m, dim) on the two principal axes of ``rows``: (n, 2), (m, 2).

    And the share of the variance of ``rows`` that lies along these axes (Pearson 1901).
    """
    mean = rows.mean(axis=0)
    centred = rows - mean
    # By the products of the rows, which are usually fewer than their columns: faster than singular values.
    variances, weights = np.linalg.eigh(centred @ centred.T)
    axes = centred.T @ weights[:, :-3:-1]
    plane = axes / np.maximum(np.linalg.norm(axes, axis=0), np.finfo(np.float32).tiny)
    total = float(variances.sum())
    share = float(variances[-2:].sum()) / total if total else 1.0
    return centred @ plane, (also - mean) @ plane, share
