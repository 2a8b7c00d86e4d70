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
from greenadapt.models.task_folder import read_task
from greenadapt.storage.files import Json, beside, described_in, real_folder, replace_json
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import added_files
from greenadapt.storage.results import MANIFEST, read_manifest

_MOVED = re.compile(r"\..+-[0-9a-f]{8}\.removed")
"""What a task's folder is called until it is deleted: a random name, which nobody else has."""


@dataclass(frozen=True)
class ListedTask:
    """One of several tasks."""

    name: str
    kind: str
    """``ner``, ``classification`` or ``qa``."""
    adapter: str
    metric: str
    weights: int
    """The number of its own parameters."""
    bytes: int
    """Size of their file."""
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

    Its files are removed from the manifest before the first one is deleted, so that the folder is valid at any moment.
    Raises ``UsageError`` if the folder has no shared encoder, ``MissingError`` listing the tasks if it has no such
    task, ``ConflictError`` if it has no other, or if somebody else put a file into the task's folder.
    """
    folder = real_folder(folder)
    require_multitask(folder)
    with lock(beside(folder, "lock"), folder):
        require_tasks(folder, [name])
        if len(task_names(folder)) == 1:
            raise ConflictError(
                f"{name} is the only task of {folder}", "delete the folder, or add another task with finetune --add-to"
            )
        gone = [folder / TASKS / name]
        if not read_task(folder, name).is_added:
            # The file that lists the task is removed last, so that the command can be repeated after a kill.
            gone = [*(seed / TASKS / name for seed in sorted((folder / SEEDS).glob("*"))), *gone]
            _refuse_added(folder, gone)
            _forget_files(folder, gone)
        else:
            _refuse_added(gone[0], gone)
        for path in gone:
            if path.is_dir():  # atomically: others see all of it or nothing
                path.rename(path.with_name(f".{name}-{uuid4().hex[:8]}.removed"))
        end_removals(folder)


def end_removals(folder: Path) -> None:
    """Delete what removals, killed ones included, have moved aside; the caller holds the folder's lock."""
    for base in (folder, *(folder / SEEDS).glob("*")):
        for hidden in (base / TASKS).glob(".*"):
            if _MOVED.fullmatch(hidden.name):
                shutil.rmtree(hidden)


def _listed(folder: Path, name: str) -> ListedTask:
    described = read_task(folder, name)
    own = folder / TASKS / name
    file = (own if described.is_added else folder) / SCORES
    scores: Json = {}
    if file.is_file():
        with described_in(file, "train the model again"):
            scores = read_described(file)["tasks"].get(name, {})
    return ListedTask(
        name=name,
        kind=described.task.name,
        adapter=described.adapter.adapter,
        metric=str(described.settings.get("metric", described.task.main)),
        weights=n_weights(own),
        bytes=(own / WEIGHTS_FILE).stat().st_size,
        is_added=described.is_added,
        scores=scores,
    )


def _refuse_added(result: Path, gone: list[Path]) -> None:
    """Raise ``ConflictError`` if a file below ``gone`` is not one of ``result``, the folder with the manifest."""
    if not (result / MANIFEST).is_file():
        return
    below = tuple(f"{path.relative_to(result).as_posix()}/".removeprefix("./") for path in gone)
    if not any(name.startswith(below) for name in read_manifest(result).files):
        return  # a removal that was killed has taken them out of the manifest
    if added := [name for name in added_files(result) if name.startswith(below)]:
        raise ConflictError(f"{result / added[0]} is a file that greenadapt did not write", "move it away first")


def _forget_files(folder: Path, gone: list[Path]) -> None:
    """Write the manifest without the files below ``gone``, atomically."""
    if not (folder / MANIFEST).is_file():
        return
    manifest = read_manifest(folder)
    below = tuple(f"{path.relative_to(folder).as_posix()}/" for path in gone)
    files = {name: entry for name, entry in manifest.files.items() if not name.startswith(below)}
    replace_json(folder / MANIFEST, asdict(replace(manifest, files=files)))
