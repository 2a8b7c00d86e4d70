"""List the tasks that share a folder's encoder, and remove one."""

import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

from greenadapt.checkpoints.layout import (
    SCORES,
    SEEDS,
    TASKS,
    WEIGHTS_FILE,
    n_weights,
    read_described,
    require_multitask,
    require_tasks,
    task_names,
)
from greenadapt.checkpoints.source import require_whole
from greenadapt.errors import ConflictError
from greenadapt.models.task_folder import read_task, scores_folder
from greenadapt.storage.files import Json, beside, described_in, real_folder, replace_json
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import added_files
from greenadapt.storage.results import MANIFEST, read_manifest

_MOVED = re.compile(r"\..+-[0-9a-f]{8}\.removed")
"""The name of a removed task's folder until it is deleted; it is random, so that no other folder has it."""


@dataclass(frozen=True)
class ListedTask:
    """One of the tasks that share an encoder."""

    name: str
    kind: str
    """``ner``, ``classification`` or ``qa``."""
    adapter: str
    metric: str
    weights: int
    """The number of parameters that only this task has."""
    bytes: int
    """The size of the file with these parameters."""
    is_added: bool
    """Whether it was added after the encoder was trained."""
    scores: Json
    """``dev`` and ``test``, if there are any, by set: ``mean`` over the seeds and, of several, ``std``."""


def list_tasks(folder: Path) -> list[ListedTask]:
    """The tasks of ``folder``; raises ``UsageError`` if it has no shared encoder."""
    require_multitask(folder)
    require_whole(folder)
    return [_listed(folder, name) for name in task_names(folder)]


def remove_task(folder: Path, name: str) -> None:
    """Remove a task from ``folder``, with its weights of all seeds; nothing else changes.

    The manifest forgets the files before they are deleted, so that the folder is valid at any moment. Raises
    ``UsageError`` if the folder has no shared encoder, ``MissingError`` listing the tasks if it has no such task,
    ``ConflictError`` for the only task, and for a file in the task's folder that greenadapt did not write.
    """
    folder = real_folder(folder)
    require_multitask(folder)
    with lock(beside(folder, "lock"), folder):
        require_tasks(folder, [name])
        if len(task_names(folder)) == 1:
            raise ConflictError(
                f"{name} is the only task of {folder}", "delete the folder, or add another task with finetune --add-to"
            )
        removed = [folder / TASKS / name]
        if not read_task(folder, name).is_added:
            # The file that lists the task is removed last, so that the command can be repeated after a kill.
            removed = [*(seed / TASKS / name for seed in sorted((folder / SEEDS).glob("*"))), *removed]
            _refuse_added(folder, removed)
            _forget_files(folder, removed)
        else:
            _refuse_added(removed[0], removed)
        for path in removed:
            if path.is_dir():  # atomically, so that readers see all of it or nothing
                path.rename(path.with_name(f".{name}-{uuid4().hex[:8]}.removed"))
        end_removals(folder)


def end_removals(folder: Path) -> None:
    """Delete the folders of removed tasks, also those of killed removals; the caller holds the folder's lock."""
    for base in (folder, *(folder / SEEDS).glob("*")):
        for hidden in (base / TASKS).glob(".*"):
            if _MOVED.fullmatch(hidden.name):
                shutil.rmtree(hidden)


def _listed(folder: Path, name: str) -> ListedTask:
    described = read_task(folder, name)
    task_folder = folder / TASKS / name
    file = scores_folder(folder, name) / SCORES
    scores: Json = {}
    if file.is_file():
        with described_in(file, "train the model again"):
            scores = read_described(file)["tasks"].get(name, {})
    return ListedTask(
        name=name,
        kind=described.task.name,
        adapter=described.adapter.adapter,
        metric=str(described.settings.get("metric", described.task.main)),
        weights=n_weights(task_folder),
        bytes=(task_folder / WEIGHTS_FILE).stat().st_size,
        is_added=described.is_added,
        scores=scores,
    )


def _refuse_added(result: Path, removed: list[Path]) -> None:
    """Raise ``ConflictError`` if a file below ``removed`` is not one of ``result``, the folder with the manifest."""
    if not (result / MANIFEST).is_file():
        return
    prefixes = tuple(f"{path.relative_to(result).as_posix()}/".removeprefix("./") for path in removed)
    if not any(name.startswith(prefixes) for name in read_manifest(result).files):
        return  # a killed removal has taken them out of the manifest
    if added := [name for name in added_files(result) if name.startswith(prefixes)]:
        raise ConflictError(f"{result / added[0]} is a file that greenadapt did not write", "move it away first")


def _forget_files(folder: Path, removed: list[Path]) -> None:
    """Write the manifest without the files below ``removed``, atomically."""
    if not (folder / MANIFEST).is_file():
        return
    manifest = read_manifest(folder)
    prefixes = tuple(f"{path.relative_to(folder).as_posix()}/" for path in removed)
    files = {name: entry for name, entry in manifest.files.items() if not name.startswith(prefixes)}
    replace_json(folder / MANIFEST, asdict(replace(manifest, files=files)))
