"""Fine-tuning one encoder and what each of many tasks adds to it, together (arXiv 1902.02671)."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from greenadapt.errors import ConflictError
from greenadapt.export import copy_tokenizers
from greenadapt.pipeline.adapted import adapted_input
from greenadapt.pipeline.multitask.request import MultitaskRequest
from greenadapt.pipeline.multitask.run import TasksRun, is_other
from greenadapt.pipeline.multitask.task_data import described
from greenadapt.pipeline.multitask.task_list import end_removals
from greenadapt.pipeline.run_names import joined
from greenadapt.pipeline.session import FINETUNE, Session, require_torch
from greenadapt.pipeline.start import Start
from greenadapt.processes import launched_processes
from greenadapt.store import Job, Json, Place, Result, write_json
from greenadapt.training.layout import MULTITASK_FILE, TASK_FILE, TASKS
from greenadapt.training.multitask_folder import is_multitask, read_task, task_names

if TYPE_CHECKING:
    from greenadapt.report.multitask_card import MultitaskCard
    from greenadapt.training.multitask_run import MultitaskSetup


def train_tasks(session: Session, request: MultitaskRequest) -> Result:
    """Train, score and write a model of all tasks for each seed, as ``finetune`` does of one.

    Raises ``ConflictError`` where tasks were added to the folder that training it anew would take away.
    """
    require_torch("fine-tuning")
    run = _Together(request, Start.of(request.model, request.memory, request.memory_config))
    session = replace(session, out=session.out or _default_out(request, run.start))
    place = session.place("", run.start.model.name, FINETUNE)
    result = run.made(session, place)
    gone = [name for name in request.config()["tasks"] if name not in task_names(result.folder)]
    if gone and launched_processes()[0] == 0:
        session.progress.warn(f"{place.path} had {', '.join(gone)}, too, until removed: train it anew with --force")
    return result


def _default_out(request: MultitaskRequest, start: Start) -> Path:
    strategy = "" if request.memory is None else f"-{request.memory_config.strategy}"
    tasks = joined(entry.name for entry in request.tasks)
    return Path("runs") / f"tasks-{start.model.name}-{tasks}{strategy}"


class _Together(TasksRun):
    """All tasks, whose files lie beside those of their encoder."""

    adds: ClassVar[bool] = False

    def config(self) -> Json:
        memory = self.start.memory
        return super().config() | ({} if memory is None else {"memory": asdict(memory.config)})

    @property
    def model_name(self) -> str:
        return self.start.model.name

    def model_input(self) -> Json:
        return adapted_input(self.start.model)

    def check(self, session: Session, place: Place, job: Job) -> None:
        current = place.current()
        if current is None or not is_multitask(current.folder):
            return
        end_removals(current.folder)
        added = [name for name in task_names(current.folder) if read_task(current.folder, name).is_added]
        if added and (session.force or is_other(current, job)):
            raise ConflictError(
                f"{place.path} has tasks that were added to it ({', '.join(added)}) and would go if it was trained "
                "anew",
                "give another --out, or remove them first with greenadapt tasks FOLDER --remove NAME",
            )

    def task_folder(self, work: Path, name: str) -> Path:
        return work / TASKS / name

    def describe(self, setup: "MultitaskSetup", work: Path, used: Json) -> None:
        if self.start.memory is not None:
            used = {**used, "memory": self.start.memory.as_settings()}
        copy_tokenizers(self.start.model.folder, work)
        for one in setup.tasks:
            write_json(self.task_folder(work, one.name) / TASK_FILE, described(one))
        write_json(work / MULTITASK_FILE, {**used, "tasks": [one.name for one in setup.tasks]})

    def card_class(self) -> "type[MultitaskCard]":
        from greenadapt.report.multitask_card import MultitaskCard

        return MultitaskCard
