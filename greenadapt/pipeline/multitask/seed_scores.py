"""The scores of many tasks on one encoder, over the seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from greenadapt.store import Json
from greenadapt.tasks.task_metrics import metric_of


def summary(pool: str, metrics: Mapping[str, str], finished: Sequence[Json]) -> Json:
    """``scores.json`` from each seed's: by task and set the score that counts, and their average over all sets of all
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


def _over_seeds(values: Sequence[float | None]) -> Json:
    """``None`` where a seed has no value."""
    known = [value for value in values if value is not None]
    is_whole = len(known) == len(values)
    over: Json = {"mean": fmean(known) if is_whole else None}
    if len(values) > 1:
        over["std"] = stdev(known) if is_whole else None
    return over
