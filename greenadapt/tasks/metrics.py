"""The metric of a task, averages of scores, and confidence intervals of scores and differences."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np

from greenadapt.errors import InputError
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json
from greenadapt.tasks.base import Task

_CLASSES = ("accuracy", "macro_f1", "micro_f1", "mcc")
_NUMBERS = ("pearson", "spearman")
_ENTITIES = ("precision", "recall", "f1")
_ANSWERS = ("em", "f1", "substr")
_OF_A_LABEL = "LABEL"


def metric_of(scores: Json, metric: str) -> float | None:
    """The score at a dotted path such as ``accuracy`` or ``by_class.1.f1``; a label may have dots.

    ``None`` if no example has the label, or a correlation is undefined.
    """
    value: Any = scores
    for key in _parts(metric):
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return float(value) if isinstance(value, int | float) else None


def average(columns: Iterable[float | None]) -> float | None:
    """The mean of the scores of all sets of all tasks (arXiv 1902.02671, table 2: nine columns of eight tasks).

    ``None`` counts as 0, as an undefined correlation does in ``main_score``. The mean of no columns is ``None``.
    """
    values = [column or 0.0 for column in columns]
    return sum(values) / len(values) if values else None


def choose_metric(metric: str | None, task: Task[Any], where: str) -> str:
    """``metric``, or if it is ``None`` the main score of ``task``, after ``fit``.

    Raises ``InputError`` if the task has no such score, a lower score is better, or no training example has the label.
    """
    if metric is None:
        return task.main
    settings, parts = task.settings(), _parts(metric)
    names = _metric_names(task.name, settings.get("label_kind"))
    if (f"{parts[0]}.{_OF_A_LABEL}.{parts[2]}" if len(parts) == 3 else metric) not in names:
        raise InputError(
            f"{where}: metric {metric!r} is not a score of this task that is higher where it is better",
            f"known are {', '.join(names)}",
        )
    if len(parts) < 3:
        return metric
    labels: list[str] = settings["labels"]
    types = labels if task.name == "classification" else [name[2:] for name in labels if name.startswith("B-")]
    if parts[1] not in types:
        raise InputError(
            f"{where}: metric {metric} is of {parts[1]}, which no training example has", f"they have {', '.join(types)}"
        )
    return metric


def _metric_names(task: str, label_kind: str | None) -> tuple[str, ...]:
    """The scores of a kind of task of which higher is better; ``LABEL`` stands for any label."""
    if task == "qa":
        return (*_ANSWERS, *(f"{part}.{name}" for part in ("has_answer", "no_answer") for name in _ANSWERS))
    if task == "ner":
        return (*_ENTITIES, *(f"by_type.{_OF_A_LABEL}.{name}" for name in _ENTITIES))
    return (
        _NUMBERS if label_kind == "numbers" else (*_CLASSES, *(f"by_class.{_OF_A_LABEL}.{name}" for name in _ENTITIES))
    )


def _parts(metric: str) -> tuple[str, ...]:
    """Split a path into a name, a group and a name, or a group, a label, which may have dots, and a name."""
    group, *remainder = metric.split(".", 1)
    return (group, *remainder[0].rsplit(".", 1)) if remainder else (group,)


def over_seeds(seeds: list[Json]) -> Json:
    """Mean and standard deviation of the scores that are numbers for every seed."""
    names = [name for name in seeds[0] if all(isinstance(seed[name], float) for seed in seeds)]
    values = {name: [seed[name] for seed in seeds] for name in names}
    return {
        "mean": {name: fmean(numbers) for name, numbers in values.items()},
        "std": {name: stdev(numbers) for name, numbers in values.items() if len(numbers) > 1},
    }


_BLOCK = 1 << 21
"""Maximum number of draws in memory."""
_LEVEL = 0.95
FEWEST = 10
"""Minimum number of contexts to resample; with fewer, questions are resampled."""


@dataclass(frozen=True)
class Interval:
    """A model's score, and the bounds of its 95 % percentile interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """The main scores of two models, averaged over seeds, and the bootstrap of their difference."""

    ours: float
    theirs: float
    difference: float
    """``ours - theirs``."""
    low: float
    high: float
    """Bounds of the 95 % percentile interval of the difference."""
    share_positive: float
    """Share of the samples in which ours is better."""


def interval(statistics: Array, main_score: Callable[[Array], Array], samples: int = 2000, seed: int = 0) -> Interval:
    """Percentile bootstrap of one model's score over examples (Efron & Tibshirani 1993, section 13.3).

    ``statistics`` (n_examples, m) are additive; ``main_score`` maps their sums (…, m) to scores (…). With several
    seeds, (n_seeds, n_examples, m), the score is the mean over the seeds, which are resampled, too, as in
    ``paired_bootstrap``. Apply ``resample`` to the statistics of questions first.
    """
    models = statistics.astype(np.float64, copy=False).reshape(1, -1, *statistics.shape[-2:])
    scores = [(weights * of_model[:, 0]).sum(axis=1) for weights, of_model in _draws(models, main_score, samples, seed)]
    low, high = _bounds(np.concatenate(scores))
    return Interval(float(main_score(models[0].sum(axis=1)).mean()), low, high)


def groups_of(examples: Sequence[Any]) -> tuple[list[str], str]:
    """The context of each question or the document of each sentence, "" if it is not known, and what they are."""
    is_of_contexts = any(hasattr(example, "context") for example in examples)
    return [getattr(example, "group", "") for example in examples], "contexts" if is_of_contexts else "documents"


def resample(statistics: Array, groups: Sequence[str], unit: str = "contexts") -> tuple[Array, str]:
    """(…, n_examples, m) → (…, n, m) statistics of what is to be resampled, and its name: ``unit`` or ``examples``.

    Examples of one group are not independent, so groups are resampled if there are at least ``FEWEST``.
    """
    if len(set(groups)) < FEWEST:
        return statistics, "examples"
    return sum_groups(statistics, groups), unit


def sum_groups(statistics: Array, groups: Sequence[str]) -> Array:
    """(…, n_examples, m) → (…, n_groups, m): the sums over each group of examples, in order of first occurrence."""
    numbers = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros((len(numbers), *statistics.shape[:-2], statistics.shape[-1]))
    np.add.at(sums, [numbers[group] for group in groups], np.moveaxis(statistics, -2, 0))
    return np.moveaxis(sums, 0, -2)


def paired_bootstrap(
    ours: Array, theirs: Array, main_score: Callable[[Array], Array], samples: int = 2000, seed: int = 0
) -> Difference:
    """Paired bootstrap of the difference between two models that ran with the same seeds on the same examples.

    ``ours`` and ``theirs`` (n_seeds, n_examples, m) are additive statistics; ``main_score`` maps their sums (…, m) to
    scores (…). Each sample draws examples with replacement, the same for both models and all seeds (Efron & Tibshirani
    1993; Berg-Kirkpatrick, Burkett & Klein 2012), and seeds with replacement, the same for both models, so that the
    interval also covers the variation between seeds.
    """
    differences = paired_samples(ours, theirs, main_score, samples, seed)
    models = np.stack([ours, theirs]).astype(np.float64, copy=False)
    mean_ours, mean_theirs = main_score(models.sum(axis=2)).mean(axis=1).tolist()
    low, high = _bounds(differences)
    share = float(np.mean(differences > 0))
    return Difference(mean_ours, mean_theirs, mean_ours - mean_theirs, low, high, share)


def paired_samples(
    ours: Array, theirs: Array, main_score: Callable[[Array], Array], samples: int = 2000, seed: int = 0
) -> Array:
    """The difference in each sample of ``paired_bootstrap``, (samples,)."""
    models = np.stack([ours, theirs]).astype(np.float64, copy=False)
    draws = _draws(models, main_score, samples, seed)
    return np.concatenate([(weights * (scores[:, 0] - scores[:, 1])).sum(axis=1) for weights, scores in draws])


def gap_covered(base: float, ours: float, reference: float) -> float | None:
    """(ours − base) / (reference − base), the share of a reference's lead over the base model that ours has (Poerner et
    al. 2020, section 5); ``None`` if the reference is not better than the base model.
    """
    return (ours - base) / (reference - base) if reference > base else None


def _draws(
    models: Array, main_score: Callable[[Array], Array], samples: int, seed: int
) -> Iterator[tuple[Array, Array]]:
    """Blocks of samples of ``models`` (k, n_seeds, n_examples, m): the weights of the seeds in each sample, (size,
    n_seeds), and the main scores, (size, k, n_seeds).
    """
    k, n_seeds, n_examples, m = models.shape
    by_example = models.transpose(2, 0, 1, 3).reshape(n_examples, -1)
    random = np.random.default_rng(seed)
    step = max(1, _BLOCK // n_examples)
    for begin in range(0, samples, step):
        counts = _counts(random, min(step, samples - begin), n_examples)
        scores = main_score((counts @ by_example).reshape(len(counts), k, n_seeds, m))
        yield _counts(random, len(counts), n_seeds) / n_seeds, scores


def _bounds(scores: Array) -> tuple[float, float]:
    """Bounds of the percentile interval."""
    low, high = np.quantile(scores, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
    return low, high


def _counts(random: np.random.Generator, size: int, n: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """(size, n): how often each of ``n`` items occurs in ``n`` draws with replacement."""
    # Counting draws is several times faster than numpy's multinomial.
    numbers = random.integers(n, size=(size, n)) + n * np.arange(size)[:, np.newaxis]
    return np.bincount(numbers.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)
