"""The scores of many tasks on one encoder as tables of text, for the terminal and for the model card."""

from collections.abc import Sequence
from typing import Any

from greenadapt.report.score_tables import VIEWS, Table, figure

Json = dict[str, Any]
_KINDS = {"test": "test", "dev": "development"}


def task_score_tables(scores: Json) -> list[Table]:
    """The tables of a ``scores.json`` of many tasks: on the test and the development sets a row a set, and the average.

    Of several seeds the mean and the deviation of a sample. Shares and correlations are in percent.
    """
    return [_table(scores, kind) for kind in _KINDS if kind in scores["average"]]


def listed_table(tasks: Sequence[Json]) -> Table:
    """Tasks of a folder, each with ``name``, ``kind``, ``adapter``, ``is_added``, ``weights``, ``metric`` and
    ``scores``, of which the test sets' are told, or else the development sets'.
    """
    rows = [
        [
            one["name"],
            one["kind"] + (", added" if one["is_added"] else ""),
            one["adapter"],
            f"{one['weights']:,}",
            one["metric"],
            _told(one["scores"]),
        ]
        for one in tasks
    ]
    columns = ["task", "kind", "adapter", "weights", "score", "in percent"]
    return Table(f"{counted(len(rows))} on one encoder", columns, rows)


def counted(n_tasks: int) -> str:
    """So many tasks, in words."""
    return "1 task" if n_tasks == 1 else f"{n_tasks} tasks"


def set_name(task: str, kind: str, name: str) -> str:
    """How a set of a task is called: by the task's name alone where it is the only one of its kind."""
    return task if name == kind else f"{task} {name}"


def _table(scores: Json, kind: str) -> Table:
    seeds = scores["seeds"]
    title = f"{counted(len(scores['tasks']))}, {_KINDS[kind]} sets, in percent"
    if _has_views(seeds[0], kind):
        title += f", by the logits of {VIEWS[scores['pool']]}"
    rows = [
        [f"{set_name(task, kind, name)}, {scores['metrics'][task]}", *_over_seeds(over, len(seeds))]
        for task, kinds in scores["tasks"].items()
        for name, over in kinds.get(kind, {}).items()
    ]
    if len(rows) > 1:
        rows.append(["average", *_over_seeds(scores["average"][kind], len(seeds))])
    columns = ["mean", "std"] if len(seeds) > 1 else [f"seed {seeds[0]['seed']}"]
    return Table(title, ["set, score", *columns], rows)


def _told(scores: Json) -> str:
    kind = next((kind for kind in _KINDS if kind in scores), None)
    if kind is None:
        return ""
    means = {name: figure(over["mean"]) for name, over in scores[kind].items()}
    return ", ".join(f"{name} {mean}" for name, mean in means.items())


def _over_seeds(over: Json, n_seeds: int) -> list[str]:
    return [figure(over["mean"]), *([figure(over["std"])] if n_seeds > 1 else [])]


def _has_views(seed: Json, kind: str) -> bool:
    """Whether both tokenizations were scored, which the test sets' scores say."""
    sets = [scores for kinds in seed["tasks"].values() for scores in kinds.get(kind, {}).values()]
    return any(len(scores.get("views", {})) > 1 for scores in sets)
