"""Training under several seeds, one after the other, and their scores together."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from greenadapt.checkpoints.layout import SCORES, SEEDS, read_described
from greenadapt.errors import UsageError
from greenadapt.storage.files import Json
from greenadapt.tasks.metrics import metric_of


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise ``UsageError`` for no seeds, one that is there twice, or one that is too large."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError("need at least one seed, and each once", "give --seeds 1 or more")
    for seed in seeds:
        if not 0 <= seed < 2**32:
            raise UsageError(f"--seed is {seed}, must be from 0 to {2**32 - 1}")


def train_seeds(
    seeds: Sequence[int], work: Path, train: Callable[[int, Path, list[Json]], None], *, is_first: bool
) -> list[Json]:
    """Call ``train`` for every seed that is not finished, and return the scores of each.

    It is given the seed, its folder and the scores of those before it, of which there are none for the first.
    """
    from greenadapt.training.state import remove_state

    finished: list[Json] = []
    for seed in seeds:
        folder = work / SEEDS / str(seed)
        if not (folder / SCORES).is_file():
            train(seed, folder, finished)
        if is_first:
            remove_state(folder)
        finished.append(read_described(folder / SCORES))
    return finished


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
