"""The tasks that share a folder's encoder."""

from pathlib import Path

from greenadapt.checkpoints.layout import (
    SCORES,
    TASKS,
    WEIGHTS_FILE,
    is_multitask,
    n_weights,
    read_described,
    task_names,
)
from greenadapt.checkpoints.source import require_whole
from greenadapt.errors import MissingError, UsageError
from greenadapt.models.task_folder import TaskFolder
from greenadapt.store.files import Json


def list_tasks(folder: Path) -> list[Json]:
    """The tasks of ``folder``; raises ``MissingError`` if it does not exist, ``UsageError`` without a shared encoder.

    Each has ``name``, ``kind``, ``adapter``, ``metric``, the number of ``weights`` that only this task has and the
    ``bytes`` of their file, and ``scores``: ``dev`` and ``test``, if there are any, by set, as the ``mean`` over the
    seeds and, of several, ``std``.
    """
    if not folder.exists():
        raise MissingError(f"{folder} does not exist", "check the path")
    if not is_multitask(folder):
        raise UsageError(f"{folder} has no tasks that share an encoder", "give the folder that finetune --tasks wrote")
    require_whole(folder)
    file = folder / SCORES
    scores = read_described(file)["tasks"] if file.is_file() else {}
    return [_describe(folder, name, scores.get(name, {})) for name in task_names(folder)]


def _describe(folder: Path, name: str, scores: Json) -> Json:
    described = TaskFolder.open_without_weights(folder, task=name)
    assert described.adapter is not None
    task_folder = folder / TASKS / name
    return {
        "name": name,
        "kind": described.task.name,
        "adapter": described.adapter.adapter,
        "metric": str(described.settings.get("metric", described.task.main)),
        "weights": n_weights(task_folder),
        "bytes": (task_folder / WEIGHTS_FILE).stat().st_size,
        "scores": scores,
    }
