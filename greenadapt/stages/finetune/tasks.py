"""The tasks that share a folder's encoder: list and remove them, and train further ones that leave it unchanged."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from uuid import uuid4

from greenadapt.checkpoints.layout import (
    MULTITASK_FILE,
    SCORES,
    SEEDS,
    TASK_FILE,
    TASKS,
    WEIGHTS_FILE,
    n_weights,
    read_described,
    require_multitask,
    require_task,
    task_names,
)
from greenadapt.checkpoints.provenance import check_model, encoder_input, starting_model
from greenadapt.checkpoints.source import require_whole
from greenadapt.config import AdapterConfig, SamplingConfig
from greenadapt.errors import ConflictError, UsageError, require_torch
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.task_folder import end_removals, read_task, scores_folder
from greenadapt.stages.finetune.on_cluster import train_on_cluster
from greenadapt.stages.finetune.request import FinetuneRequest, Start, described
from greenadapt.stages.finetune.train import Finetuning, is_other, run_together, with_kept_tasks
from greenadapt.stages.plan import run_each
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, beside, plain, real_folder, replace_json, write_json
from greenadapt.storage.jobs import Job, Place, describe_difference
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import added_files
from greenadapt.storage.results import MANIFEST, Result, read_manifest

if TYPE_CHECKING:
    from greenadapt.training.finetune import FinetuneSetup


def list_tasks(folder: Path) -> list[Json]:
    """The tasks of ``folder``; raises ``UsageError`` if it has no shared encoder.

    Each has ``name``, ``kind``, ``adapter``, ``metric``, the number of ``weights`` that only this task has and the
    ``bytes`` of their file, ``is_added``, whether it was added after the encoder was trained, and ``scores``: ``dev``
    and ``test``, if there are any, by set, as the ``mean`` over the seeds and, of several, ``std``.
    """
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
        require_task(folder, name)
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


def _listed(folder: Path, name: str) -> Json:
    described = read_task(folder, name)
    task_folder = folder / TASKS / name
    file = scores_folder(folder, name) / SCORES
    scores: Json = {}
    if file.is_file():
        scores = read_described(file)["tasks"].get(name, {})
    return {
        "name": name,
        "kind": described.task.name,
        "adapter": described.adapter.adapter,
        "metric": str(described.settings.get("metric", described.task.main)),
        "weights": n_weights(task_folder),
        "bytes": (task_folder / WEIGHTS_FILE).stat().st_size,
        "is_added": described.is_added,
        "scores": scores,
    }


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


def add_tasks(session: Session, folder: Path, request: FinetuneRequest) -> list[Result]:
    """Train further tasks on the encoder of ``folder``, each separately, and add them to the folder.

    The encoder, its memory and the other tasks do not change. Every task is a result of its own, which is up to date
    or resumed like any result. ``request.model`` and the order of the tasks have no effect. Raises ``UsageError`` for
    a folder without a shared encoder and for a memory, ``ConflictError`` for a task that the folder already has.
    """
    require_torch("fine-tuning")
    folder = real_folder(folder)
    require_multitask(folder)
    if request.memory is not None:
        raise UsageError("added tasks use the encoder's memory, if it has one", "leave out --memory")
    if request.adapter is not None and request.adapter.share_projections:
        raise UsageError(
            "added tasks are trained alone, and --share-projections is for tasks trained together",
            "leave out --share-projections",
        )
    model = starting_model(str(folder))
    check_model(model, whole=True)
    start = Start(model, MemoryChoice.of_settings(read_described(folder / MULTITASK_FILE), folder, folder))
    session = replace(session, out=folder)
    request = replace(
        request,
        model=str(folder),
        adapter=replace(request.adapter or AdapterConfig(), freeze_encoder=True),
        sampling=SamplingConfig(steps_per_epoch=request.sampling.steps_per_epoch),
    )
    added = []
    for entry in request.tasks:
        place = Place(folder / TASKS / entry.name, linked=False)
        added.append(_Added(session, place, with_kept_tasks(session, place, replace(request, tasks=(entry,))), start))
    failures = train_on_cluster(session, added)
    results = run_each(
        partial(run_together, task_run) for number, task_run in enumerate(added) if number not in failures.runs
    )
    failures.require_all()
    return results


class _Added(Finetuning):
    """One added task; only its own files are written."""

    adds: ClassVar[bool] = True

    def model_input(self) -> Json:
        return encoder_input(self.start.model)

    def check(self, job: Job) -> None:
        path = self.place.path
        folder, name = path.parent.parent, path.name
        namesake = next((task for task in task_names(folder) if task.lower() == name.lower()), None)
        if namesake is None:
            return
        hint = f"give the new task another name, or first run greenadapt tasks FOLDER --remove {namesake}"
        current = self.place.current()
        if namesake != name or current is None or not read_task(folder, name).is_added:
            raise ConflictError(f"{folder} has a task {namesake} already", hint)
        if is_other(current, job) and not self.session.force:
            difference = describe_difference(current.manifest.config, plain(job.config)) or "other files"
            raise ConflictError(
                f"{folder} has a task {name} already, added with other settings or files ({difference})", hint
            )

    def describe(self, setup: "FinetuneSetup", work: Path) -> None:
        (data,) = setup.tasks
        write_json(work / TASK_FILE, {**described(data), **self.prediction_settings(setup, work), "added": True})
