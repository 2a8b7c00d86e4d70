"""The seeds of a run, and a summary of their scores."""

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from greenadapt.errors import UsageError
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task
from greenadapt.tasks.metrics import average, metric_of, over_seeds


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise ``UsageError`` for no seeds, a repeated one, or one that is too large."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError("need at least one seed, without repetition", "give --seeds 1 or more")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UsageError(f"--seed is {seed}, must be from 0 to {2**32 - 1}")


def plain_summary(task: Task[Any], pool: str, finished: list[Json]) -> Json:
    """``scores.json`` of a plain model: every seed's scores, and over the seeds the mean and sample deviation."""
    found: Json = {"task": task.name, "main": task.main, "pool": pool, "seeds": finished}
    if "test" in finished[0]:
        found |= over_seeds([seed["test"] for seed in finished])
    if "dev" in finished[0]:
        found["dev"] = over_seeds([seed["dev"] for seed in finished])
    return found


def summary(pool: str, metrics: Mapping[str, str], finished: Sequence[Json]) -> Json:
    """``scores.json`` of shared tasks: by task and set the main score, and their average over all sets of all
    tasks (arXiv 1902.02671, table 2), each as the mean over the seeds and, of several, the deviation.

    ``metrics`` has each task's, see ``metric_of``.
    """
    first = finished[0]
    return {
        "pool": pool,
        "metrics": dict(metrics),
        "average": {kind: _over_seeds([one["average"][kind] for one in finished]) for kind in first["average"]},
        "tasks": {
            task: {
                kind: {
                    name: _over_seeds([metric_of(one["tasks"][task][kind][name], metrics[task]) for one in finished])
                    for name in sets
                }
                for kind, sets in kinds.items()
            }
            for task, kinds in first["tasks"].items()
        },
        "seeds": list(finished),
    }


def only_tasks(scores: Json, tasks: Collection[str]) -> Json:
    """``scores.json`` of shared tasks as if there were only ``tasks``."""
    metrics = {task: metric for task, metric in scores["metrics"].items() if task in tasks}
    return summary(scores["pool"], metrics, [_only_tasks(seed, metrics) for seed in scores["seeds"]])


def _only_tasks(seed: Json, metrics: Mapping[str, str]) -> Json:
    """One seed's scores with those tasks that have ``metrics``."""
    tasks = {task: kinds for task, kinds in seed["tasks"].items() if task in metrics}
    columns: dict[str, list[float | None]] = {}
    for task, kinds in tasks.items():
        for kind, sets in kinds.items():
            columns.setdefault(kind, []).extend(metric_of(each, metrics[task]) for each in sets.values())
    averages = {kind: average(columns[kind]) for kind in seed["average"] if kind in columns}
    return {**seed, "average": averages, "tasks": tasks}


def _over_seeds(values: Sequence[float | None]) -> Json:
    """``None`` if a seed has no value."""
    known = [value for value in values if value is not None]
    is_whole = len(known) == len(values)
    over: Json = {"mean": fmean(known) if is_whole else None}
    if len(values) > 1:
        over["std"] = stdev(known) if is_whole else None
    return over
