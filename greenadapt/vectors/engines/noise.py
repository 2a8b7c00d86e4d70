"""How often words are trained and how often they are negatives, by how often they occur."""

import numpy as np

from greenadapt.storage.arrays import Array


def keep_thresholds(counts: Array, sample: float) -> Array:
    """Subsampling: a word is kept where a random uint32 is at most this number, uint32 ``(n_words,)``.

    The probability is √(t/c) + t/c, at most 1, for count c; t is ``sample`` times all words, as in word2vec.c, or
    gensim's own rule for a ``sample`` of 1 and above.
    """
    t = sample * counts.sum() if sample < 1 else int(sample * (3 + np.sqrt(5)) / 2)
    probability = np.minimum((np.sqrt(counts / t) + 1) * (t / counts), 1) if t else np.ones(len(counts))
    thresholds: Array = (probability * (2**32 - 1)).astype(np.uint32)
    return thresholds


def noise_weights(counts: Array, exponent: float) -> Array:
    """What the probability of a word as a negative is proportional to, count^``exponent``: float64 ``(n_words,)``."""
    weights: Array = counts.astype(np.float64) ** exponent
    return weights
