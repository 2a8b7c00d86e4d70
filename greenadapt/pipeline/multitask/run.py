"""Training tasks on one encoder as a stage: what those that are trained together and those that are added share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from greenadapt import __version__
from greenadapt.adapter_config import AdapterConfig
from greenadapt.added_words import WORDS_FILE
from greenadapt.checkpoint import Checkpoint
from greenadapt.pipeline.adapted import base_id
from greenadapt.pipeline.multitask.request import MultitaskRequest
from greenadapt.pipeline.multitask.seed_scores import summary
from greenadapt.pipeline.multitask.task_data import read_task_data
from greenadapt.pipeline.seeds import train_seeds
from greenadapt.pipeline.session import FINETUNE, Session, model_facts, source_input
from greenadapt.pipeline.start import Start
from greenadapt.pipeline.together import Build, run_together, start_machine
from greenadapt.store import Job, Json, Manifest, Outcome, Place, Result, plain, write_json
from greenadapt.training.layout import SCORES, TASK_FILE
from greenadapt.training.seed_folders import n_weights, read_described

if TYPE_CHECKING:
    from greenadapt.report.multitask_card import MultitaskCard
    from greenadapt.training.machine import Machine
    from greenadapt.training.multitask_run import MultitaskSetup


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
        from greenadapt.training.multitask_run import MultitaskSetup

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
    from greenadapt.models.adapter_shape import AdapterShape
    from greenadapt.models.hooks import check_model_type

    check_model_type(checkpoint.model_type)
    AdapterShape.of(adapter, checkpoint.config["hidden_size"], checkpoint.config["num_hidden_layers"])


def _train_seed(setup: "MultitaskSetup", work: Path, seed: int, folder: Path, finished: list[Json]) -> None:
    """Train and write one seed's model; with the end of this function its memory is free for the next one."""
    from greenadapt.training.multitask_run import MultitaskRun

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
