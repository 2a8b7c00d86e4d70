"""Train further tasks, each separately, on a shared encoder that does not change."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from greenadapt.checkpoints.layout import (
    MULTITASK_FILE,
    TASK_FILE,
    TASKS,
    read_described,
    require_multitask,
    task_names,
)
from greenadapt.checkpoints.provenance import check_model, encoder_input, starting_model
from greenadapt.config import AdapterConfig, SamplingConfig
from greenadapt.errors import ConflictError, UsageError, require_torch
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.task_folder import read_task
from greenadapt.stages.finetune.on_cluster import Failures, train_on_cluster
from greenadapt.stages.finetune.request import FinetuneRequest, Start, described
from greenadapt.stages.finetune.train import Finetuning, is_other, run_together
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, plain, real_folder, write_json
from greenadapt.storage.jobs import Job, Place, describe_difference
from greenadapt.storage.results import Result

if TYPE_CHECKING:
    from greenadapt.training.finetune import FinetuneSetup


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
    added = [
        _Added(session, Place(folder / TASKS / entry.name, linked=False), replace(request, tasks=(entry,)), start)
        for entry in request.tasks
    ]
    failures = Failures() if session.cluster is None else train_on_cluster(session, added)
    results = session.run_each(
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
