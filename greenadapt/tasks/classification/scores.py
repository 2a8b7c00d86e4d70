"""Scores of classes and of predicted numbers, and the same scores from sums over examples."""

import warnings
from collections.abc import Sequence

import numpy as np

from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.tasks.records import natural_order

_CONSTANT = 1e-13
"""A variance below this share of the mean square is rounding."""


def class_scores(gold: Sequence[str], predicted: Sequence[str]) -> Json:
    """``macro_f1``, ``micro_f1``, ``accuracy``, ``mcc`` (Matthews' correlation, 0 if there is only one class), and
    ``by_class``: precision, recall, F1 and support of each class in ``gold`` or ``predicted``, of which ``macro_f1`` is
    the mean. Micro F1 is the accuracy, as each text has one class.

    All are scikit-learn's; a precision or recall of 0/0 is 0.
    """
    from sklearn.metrics import accuracy_score, matthews_corrcoef, precision_recall_fscore_support

    classes = natural_order({*gold, *predicted})
    by_class = precision_recall_fscore_support(gold, predicted, labels=classes, zero_division=0)
    names = ("precision", "recall", "f1", "support")
    accuracy = float(accuracy_score(gold, predicted))
    return {
        "macro_f1": float(np.mean(by_class[names.index("f1")])),
        "micro_f1": accuracy,
        "accuracy": accuracy,
        "mcc": float(matthews_corrcoef(gold, predicted)) if len(classes) > 1 else 0.0,
        "by_class": {
            label: dict(zip(names, (value.item() for value in values), strict=True))
            for label, *values in zip(classes, *by_class, strict=True)
        },
    }


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> Json:
    """``pearson`` and ``spearman`` (scipy's; ``None`` where one side is constant), and ``mse`` (mean squared error)."""
    from scipy import stats

    scores: Json = {"pearson": None, "spearman": None, "mse": float(np.mean(np.subtract(gold, predicted) ** 2))}
    if len(gold) < 2:
        return scores
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)
        warnings.simplefilter("ignore", stats.NearConstantInputWarning)
        for name, correlation in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
            value = float(correlation(gold, predicted).statistic)
            scores[name] = value if np.isfinite(value) else None
    return scores


def class_counts(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> Array:
    """Which class each example was rightly given, has, and was given: (n, 3 * classes) float64, three ones at most.

    The classes are ``labels``, which all of ``predicted`` is among, and then those that only ``gold`` has.
    """
    classes = {label: i for i, label in enumerate([*labels, *natural_order({*gold} - {*labels})])}
    has, given = (np.asarray([classes[label] for label in each], np.int64) for each in (gold, predicted))
    counts = np.zeros((len(has), 3, len(classes)))
    examples = np.arange(len(has))
    counts[examples, 0, has] = has == given
    counts[examples, 1, has] = 1
    counts[examples, 2, given] = 1
    return counts.reshape(len(has), -1)


def macro_f1(sums: Array) -> Array:
    """Mean F1 of the classes, (…, 3 * classes) summed ``class_counts`` → (…).

    F1 = 2 TP / (gold + predicted); a class that is in neither is left out, as scikit-learn does.
    """
    hits, has, given = np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0)
    both = has + given
    f1: Array = np.divide(2 * hits, both, out=np.zeros_like(both), where=both > 0)
    return np.asarray(f1.sum(-1) / np.maximum((both > 0).sum(-1), 1))


def moments(gold: Sequence[float], predicted: Sequence[float]) -> Array:
    """1, x, y, x², y², xy of each example, (n, 6) float64; x and y are counted from the mean of ``gold``, which leaves
    the correlation as it is and keeps its digits.
    """
    x = np.asarray(gold, np.float64) - np.mean(gold)
    y = np.asarray(predicted, np.float64) - np.mean(gold)
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def pearson(sums: Array) -> Array:
    """Pearson's correlation, (…, 6) summed ``moments`` → (…); 0 where one side is constant, which correlates with
    nothing.
    """
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    x_variance, y_variance = n * xx - x * x, n * yy - y * y
    varies = (x_variance > _CONSTANT * n * xx) & (y_variance > _CONSTANT * n * yy)
    scale = np.sqrt(np.where(varies, x_variance, 1)) * np.sqrt(np.where(varies, y_variance, 1))
    return np.asarray(np.where(varies, (n * xy - x * y) / scale, 0))
