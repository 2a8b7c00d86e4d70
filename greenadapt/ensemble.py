"""What several models say together."""

from collections.abc import Sequence

import numpy as np

from greenadapt.arrays import Array
from greenadapt.config import EnsembleRule


def combined(logits: Sequence[Array], rule: EnsembleRule, head: str) -> Array:
    """The logits of an ensemble of models for one example, (n_units, k) float32, from those of each, (n_units, k).

    ``logits`` takes their mean; ``probabilities`` the logarithm of the mean of their probabilities (arXiv 2212.03613,
    section 4, "Ensemble LMs"), so that its softmax is that mean. The probabilities are over the classes, of
    ``QuestionAnswering`` over the units, of start and end each. A ``head`` of one output has no classes, it gives a
    number, and the mean is taken. A unit that no piece speaks for has the logit -inf, and probability 0 in that model.
    """
    values = np.stack(logits).astype(np.float64)
    if rule == "probabilities" and values.size and values.shape[-1] > 1:
        values = _log_softmax(values, axis=1 if head == "QuestionAnswering" else 2)
        return np.asarray(_log_sum(values, axis=0)[0] - np.log(len(logits)), np.float32)
    return np.asarray(values.mean(axis=0), np.float32)


def _log_softmax(values: Array, axis: int) -> Array:
    """Where all along ``axis`` are -inf they stay so: nothing is known there."""
    total = _log_sum(values, axis)
    return np.where(np.isneginf(values), -np.inf, values - np.where(np.isneginf(total), 0, total))


def _log_sum(values: Array, axis: int) -> Array:
    """log Σ exp along ``axis``, which is kept; -inf where all are -inf."""
    highest = values.max(axis=axis, keepdims=True)
    finite = np.where(np.isneginf(highest), 0, highest)
    with np.errstate(divide="ignore"):  # log(0) is the -inf that is meant
        return np.asarray(np.log(np.exp(values - finite).sum(axis=axis, keepdims=True)) + finite)
