"""The score that counts for a task, and averages of scores."""

from collections.abc import Iterable
from statistics import fmean, stdev
from typing import Any

from greenadapt.config import TaskConfig
from greenadapt.errors import InputError
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task

_CLASSES = ("accuracy", "macro_f1", "micro_f1", "mcc")
_NUMBERS = ("pearson", "spearman")
_ENTITIES = ("precision", "recall", "f1")
_ANSWERS = ("em", "f1", "substr")
_OF_A_LABEL = "LABEL"
_LOWER_IS_BETTER = "mse"


def metric_of(scores: Json, metric: str) -> float | None:
    """The score of a dotted path such as ``accuracy`` or ``by_class.1.f1``; a label may itself have dots.

    ``None`` if there is none: no example has the label, or a correlation is not defined.
    """
    value: Any = scores
    for key in _parts(metric):
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return float(value) if isinstance(value, int | float) else None


def average(columns: Iterable[float | None]) -> float | None:
    """The plain mean of one score of every set of every task (arXiv 1902.02671, table 2: nine columns of eight tasks).

    A score that is ``None`` counts as 0, as an undefined correlation does in ``main_score``. ``None`` without columns.
    """
    values = [0.0 if column is None else column for column in columns]
    return sum(values) / len(values) if values else None


def check_metric(metric: Any, config: TaskConfig, where: str) -> None:
    """Raise ``InputError`` if no score of such a task is called ``metric``, or it is lower where it is better."""
    numbers = config.label_kind == "numbers" or config.label_range is not None
    kind = "numbers" if config.task == "classification" and numbers else config.label_kind
    _check(metric, config.task, kind, where)


def chosen_metric(metric: str | None, task: Task[Any], where: str) -> str:
    """``metric``, or the main score of ``task``, which has been fitted.

    Raises ``InputError`` if it is a score of a label that no training example has, or of classes where the labels
    turned out to be numbers.
    """
    if metric is None:
        return task.main
    settings = task.settings()
    _check(metric, task.name, settings.get("label_kind", "auto"), where)
    if len(parts := _parts(metric)) < 3:
        return metric
    labels: list[str] = settings["labels"]
    known = labels if task.name == "classification" else [name[2:] for name in labels if name.startswith("B-")]
    if parts[1] not in known:
        raise InputError(
            f"{where}: metric {metric} is of {parts[1]}, which no training example has", f"they have {', '.join(known)}"
        )
    return metric


def _check(metric: Any, task: str, label_kind: str, where: str) -> None:
    known = _known(task, label_kind)
    parts = _parts(metric) if isinstance(metric, str) else ()
    if (f"{parts[0]}.{_OF_A_LABEL}.{parts[2]}" if len(parts) == 3 else metric) in known:
        return
    if metric == _LOWER_IS_BETTER:
        raise InputError(f"{where}: metric {metric} is lower where it is better", f"give one of {', '.join(known)}")
    raise InputError(f"{where}: metric {metric!r} is not a score of this task", f"known are {', '.join(known)}")


def _known(task: str, label_kind: str) -> tuple[str, ...]:
    """The scores of a kind of task that are higher where they are better, of any label as ``LABEL``."""
    if task == "qa":
        return (*_ANSWERS, *(f"{part}.{name}" for part in ("has_answer", "no_answer") for name in _ANSWERS))
    if task == "ner":
        return (*_ENTITIES, *(f"by_type.{_OF_A_LABEL}.{name}" for name in _ENTITIES))
    classes = (*_CLASSES, *(f"by_class.{_OF_A_LABEL}.{name}" for name in _ENTITIES))
    return {"classes": classes, "numbers": _NUMBERS}.get(label_kind, (*classes, *_NUMBERS))


def _parts(metric: str) -> tuple[str, ...]:
    """What a path is made of: a name, or a group and a name, with a label between, which may have dots."""
    group, *rest = metric.split(".", 1)
    return (group, *rest[0].rsplit(".", 1)) if rest else (group,)


def over_seeds(each: list[Json]) -> Json:
    """Mean and deviation of every score that is a number under each seed; others have none."""
    names = [name for name in each[0] if all(isinstance(scores[name], float) for scores in each)]
    values = {name: [scores[name] for scores in each] for name in names}
    return {
        "mean": {name: fmean(numbers) for name, numbers in values.items()},
        "std": {name: stdev(numbers) for name, numbers in values.items() if len(numbers) > 1},
    }
