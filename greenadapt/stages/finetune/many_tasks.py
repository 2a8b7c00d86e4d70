"""The finetune stage for several tasks on one encoder."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from greenadapt import __version__
from greenadapt.checkpoints.layout import (
    MULTITASK_FILE,
    SCORES,
    TASK_FILE,
    TASKS,
    is_multitask,
    n_weights,
    read_described,
    task_names,
)
from greenadapt.checkpoints.provenance import adapted_input, base_id, model_facts
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.corpus.opening import source_input
from greenadapt.errors import ConflictError, require_torch
from greenadapt.models.task_folder import read_task
from greenadapt.stages.distributed import Build, run_together, start_machine
from greenadapt.stages.finetune.request import MultitaskRequest, Start
from greenadapt.stages.finetune.seeds import summary, train_seeds
from greenadapt.stages.finetune.task_data import described, read_task_data
from greenadapt.stages.finetune.task_list import end_removals
from greenadapt.stages.run_names import joined
from greenadapt.stages.session import FINETUNE, Session
from greenadapt.storage.files import Json, plain, write_json
from greenadapt.storage.results import Job, Manifest, Outcome, Place, Result
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.writer import copy_tokenizers
from greenadapt.workers import launched_processes

if TYPE_CHECKING:
    from greenadapt.models.machine import Machine
    from greenadapt.report.multitask_card import MultitaskCard
    from greenadapt.training.finetune.many_tasks import MultitaskSetup


@dataclass(frozen=True)
class TasksRun(ABC):
    """What is asked for, and what it begins with."""

    request: MultitaskRequest
    start: Start

    adds: ClassVar[bool]
    """Whether a task is added to a folder with its encoder, of which nothing is written then."""

    def made(self, session: Session, place: Place) -> Result:
        """Bring ``place`` up to date; raises ``ConflictError`` where something else there stands in the way."""
        request = self.request
        return run_together(
            session,
            place,
            partial(start_machine, session, request.training, request.run, self.config()),
            self._build,
            partial(self._job, session, place),
        )

    def config(self) -> Json:
        """All that decides the result beside the content of files."""
        return self.request.config()

    @property
    @abstractmethod
    def model_name(self) -> str:
        """How the card calls the model that is trained."""

    @abstractmethod
    def model_input(self) -> Json:
        """What the manifest has of the model that training begins with."""

    @abstractmethod
    def check(self, session: Session, place: Place, job: Job) -> None:
        """Raise ``ConflictError`` where ``job`` would take the place of something that has to stay."""

    @abstractmethod
    def task_folder(self, work: Path, name: str) -> Path:
        """Where in ``work`` a task's own files lie."""

    @abstractmethod
    def describe(self, setup: "MultitaskSetup", work: Path, used: Json) -> None:
        """Write what says how the trained model is used; ``used`` is how it reads."""

    @abstractmethod
    def card_class(self) -> "type[MultitaskCard]":
        """Which card it has."""

    def _job(self, session: Session, place: Place, build: Build) -> Job:
        inputs = {"model": self.model_input()}
        if self.start.memory is not None:
            inputs["memory"] = self.start.memory.as_input()
        inputs |= {name: source_input(source) for name, source in self.request.sources().items()}
        job = Job(FINETUNE, self.config(), inputs, build, resumes=True, card=self._card, kept=True, joins=self.adds)
        self.check(session, place, job)
        return job

    def _build(self, session: Session, machine: "Machine", work: Path) -> Outcome:
        setup = self._setup(session, machine)
        training = self.request.training
        finished = train_seeds(self.request.seeds, work, partial(_train_seed, setup, work), is_first=machine.is_first)
        counts, *_ = [one.pop("counts") for one in finished]
        scores = summary(training.pool, {one.name: one.metric for one in setup.tasks}, finished)
        if machine.is_first:
            n_words = len(setup.tasks[0].encoder.tokenizer.added)
            self.describe(setup, work, {"pool": training.pool, "mix": training.mix, "added_words": n_words})
            write_json(work / SCORES, scores)
        machine.end()
        facts: Json = {"model": model_facts(self.start.model), "examples": counts["tasks"]}
        return Outcome(_totals(counts), {**facts, "scores": {**scores, "seeds": len(finished)}})

    def _setup(self, session: Session, machine: "Machine") -> "MultitaskSetup":
        from greenadapt.training.finetune.many_tasks import MultitaskSetup

        request, start = self.request, self.start
        checkpoint = Checkpoint.open(start.model.folder)
        _check_fit(request.adapter, checkpoint)
        read = partial(read_task_data, checkpoint=checkpoint, adapter=request.adapter, progress=session.progress)
        tasks = tuple(read(entry) for entry in request.tasks)
        start.tell(tasks[0].encoder, session.progress)
        return MultitaskSetup(
            tasks=tasks,
            checkpoint=checkpoint,
            train=request.training,
            sampling=request.sampling,
            run=request.run,
            machine=machine,
            progress=session.progress,
            general=None if start.memory is None else start.memory.open(),
            states=session.workspace.memory_cache() if request.run.cache_memory else None,
            adds=self.adds,
        )

    def _card(self, work: Path, outcome: Outcome, cost: Json) -> str:
        start = self.start
        folders = {entry.name: self.task_folder(work, entry.name) for entry in self.request.tasks}
        return self.card_class()(
            model=self.model_name,
            base=base_id(start.model),
            given=self.request.model,
            tasks={name: read_described(folder / TASK_FILE) for name, folder in folders.items()},
            weights={name: n_weights(folder) for name, folder in folders.items()},
            config=self.config(),
            entries=self.request.tasks,
            scores=read_described(work / SCORES),
            examples=outcome.facts["examples"],
            version=__version__,
            is_expanded=(start.model.folder / WORDS_FILE).is_file(),
            memory=None if start.memory is None else start.memory.as_settings(),
            cost=cost,
        ).text()


def is_other(current: Result, job: Job) -> bool:
    """Whether ``job`` would make something else than what is there."""
    return current.manifest.key != Manifest(job.stage, plain(job.config), job.inputs).key


def _check_fit(adapter: AdapterConfig, checkpoint: Checkpoint) -> None:
    """Raise ``UsageError`` where ``adapter`` does not go into the encoder, before anything is read."""
    from greenadapt.models.adapters.hooks import check_model_type
    from greenadapt.models.adapters.shape import AdapterShape

    check_model_type(checkpoint.model_type)
    AdapterShape.of(adapter, checkpoint.config["hidden_size"], checkpoint.config["num_hidden_layers"])


def _train_seed(setup: "MultitaskSetup", work: Path, seed: int, folder: Path, finished: list[Json]) -> None:
    """Train and write one seed's model; with the end of this function its memory is free for the next one."""
    from greenadapt.training.finetune.many_tasks import MultitaskRun

    run = MultitaskRun(setup, seed, folder, steps_before=sum(one["steps"] for one in finished))
    run.train()
    run.finish(work, is_whole=not finished)
    setup.machine.wait()


def _totals(counts: Json) -> Json:
    """Of all tasks together."""
    each = counts["tasks"].values()
    totals = {"tasks": len(each), **{name: sum(one[name] for one in each) for name in ("train", "inputs")}}
    totals |= {kind: sum(sum(one[kind].values()) for one in each) for kind in ("dev", "test")}
    return {**totals, "rows": counts["rows"], "rows_used": counts["rows_used"]}


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
