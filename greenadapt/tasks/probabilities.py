"""How sure a model is of its labels."""

import numpy as np
from scipy.special import softmax

from greenadapt.storage.arrays import Array


def margins(logits: Array) -> Array:
    """(n, k) → (n,) float64: by how much the most probable of k labels is more probable than the next; 1 if k is 1."""
    if logits.shape[1] < 2:
        return np.ones(len(logits))
    highest = np.partition(softmax(logits.astype(np.float64), axis=1), -2, axis=1)
    margin: Array = highest[:, -1] - highest[:, -2]
    return margin
