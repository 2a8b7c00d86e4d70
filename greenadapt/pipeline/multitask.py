"""Fine-tuning for many tasks on one encoder (arXiv 1902.02671), and for further tasks on an encoder that stays."""

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from greenadapt import __version__
from greenadapt.added_words import WORDS_FILE
from greenadapt.checkpoint import Checkpoint
from greenadapt.errors import ConflictError, UsageError
from greenadapt.export import copy_tokenizers
from greenadapt.pipeline.adapted import adapted_input, encoder_input, read_facts, starting_model
from greenadapt.pipeline.memory_choice import MemoryChoice
from greenadapt.pipeline.multitask_data import read_task_data
from greenadapt.pipeline.multitask_request import MultitaskRequest
from greenadapt.pipeline.multitask_scores import summary
from greenadapt.pipeline.session import FINETUNE, Session, model_facts, require_torch, source_input
from greenadapt.pipeline.task_list import end_removals
from greenadapt.pipeline.together import Build, run_together, start_machine
from greenadapt.pipeline.trained import Start, train_seeds
from greenadapt.processes import launched_processes
from greenadapt.store import Job, Json, Manifest, Outcome, Place, Result, describe_difference, plain, write_json
from greenadapt.training.layout import MULTITASK_FILE, SCORES, TASK_FILE, TASKS
from greenadapt.training.multitask_folder import is_multitask, n_weights, read_object, read_task, task_names

if TYPE_CHECKING:
    from greenadapt.training.machine import Machine
    from greenadapt.training.multitask_run import MultitaskSetup, TaskData

__all__ = ["MultitaskRequest", "add_tasks", "train_tasks"]


def train_tasks(session: Session, request: MultitaskRequest) -> Result:
    """Train, score and write a model of all tasks for each seed, as ``finetune`` does of one.

    Raises ``ConflictError`` where tasks were added to the folder that training it anew would take away.
    """
    require_torch("fine-tuning")
    run = _Run(request, Start.of(request.model, request.memory, request.memory_config))
    session = replace(session, out=session.out or _default_out(request, run.start))
    place = session.place("", run.start.model.name, FINETUNE)
    result = run.made(session, place)
    gone = [name for name in request.config()["tasks"] if name not in task_names(result.folder)]
    if gone and launched_processes()[0] == 0:
        session.progress.note(f"{place.path} had {', '.join(gone)}, too, until removed: train it anew with --force")
    return result


def add_tasks(session: Session, folder: Path, request: MultitaskRequest) -> list[Result]:
    """Train further tasks on the encoder of a folder, each by itself, and put each into the folder.

    The encoder, its memory and the other tasks stay as they are. Every task is a result of its own, which is up to
    date, or goes on where it was killed, like others. ``request.model`` says nothing. Raises ``MissingError`` for a
    folder that has no encoder of many tasks, ``ConflictError`` for a task that it has already.
    """
    require_torch("fine-tuning")
    folder = folder.expanduser().absolute()
    if not is_multitask(folder):
        raise UsageError(
            f"{folder} has no encoder that tasks share", "give the folder that finetune --tasks wrote with --add-to"
        )
    if request.memory is not None:
        raise UsageError("tasks that are added have the memory of the encoder, if it has one", "leave out --memory")
    model = starting_model(str(folder))
    start = Start(model, MemoryChoice.of_settings(read_object(folder / MULTITASK_FILE), folder, folder))
    session = replace(session, out=folder)
    results = []
    for entry in request.tasks:
        frozen = replace(request.adapter, freeze_encoder=True)
        run = _Run(replace(request, tasks=(entry,), adapter=frozen), start, adds=entry.name)
        results.append(run.made(session, Place(folder / TASKS / entry.name, linked=False)))
    return results


def _default_out(request: MultitaskRequest, start: Start) -> Path:
    strategy = "" if request.memory is None else f"-{request.memory_config.strategy}"
    return Path("runs") / f"tasks-{start.model.name}{strategy}"


@dataclass(frozen=True)
class _Run:
    """What is asked for, and what it begins with."""

    request: MultitaskRequest
    start: Start
    adds: str | None = None
    """The one task that is added to the folder of the starting model."""

    def made(self, session: Session, place: Place) -> Result:
        """Bring ``place`` up to date."""
        request = self.request
        return run_together(
            session,
            place,
            partial(start_machine, session, request.training, request.run, self._config()),
            self._build,
            partial(self._job, session, place),
        )

    def _config(self) -> Json:
        config = self.request.config()
        if self.start.memory is not None and self.adds is None:
            config["memory"] = asdict(self.start.memory.config)
        return config

    def _job(self, session: Session, place: Place, build: Build) -> Job:
        start = self.start
        inputs = {"model": adapted_input(start.model) if self.adds is None else encoder_input(start.model)}
        if start.memory is not None:
            inputs["memory"] = start.memory.as_input()
        inputs |= {name: source_input(source) for name, source in self.request.sources().items()}
        job = Job(FINETUNE, self._config(), inputs, build, resumes=True, card=self._card)
        (_keep_added if self.adds is None else _keep_task)(session, place, job)
        return job

    def _build(self, session: Session, machine: "Machine", work: Path) -> Outcome:
        setup = self._setup(session, machine)
        finished = train_seeds(self.request.seeds, work, partial(_train_seed, setup, work), is_first=machine.is_first)
        counts, *_ = [one.pop("counts") for one in finished]
        scores = summary(self.request.training.pool, {one.name: one.metric for one in setup.tasks}, finished)
        if machine.is_first:
            self._write(setup, work)
            write_json(work / SCORES, scores)
        machine.end()
        facts: Json = {"model": model_facts(self.start.model), "examples": counts["tasks"]}
        return Outcome(_totals(counts), {**facts, "scores": {**scores, "seeds": len(finished)}})

    def _write(self, setup: "MultitaskSetup", work: Path) -> None:
        """What says how the trained model is used."""
        training, memory = self.request.training, self.start.memory
        used: Json = {"pool": training.pool, "mix": training.mix}
        if self.adds is not None:
            (one,) = setup.tasks
            write_json(work / TASK_FILE, {**_described(one), **used, "added": True})
            return
        if memory is not None:
            used["memory"] = memory.as_settings()
        copy_tokenizers(self.start.model.folder, work)
        for one in setup.tasks:
            write_json(work / TASKS / one.name / TASK_FILE, _described(one))
        write_json(work / MULTITASK_FILE, {**used, "tasks": [one.name for one in setup.tasks]})

    def _setup(self, session: Session, machine: "Machine") -> "MultitaskSetup":
        from greenadapt.training.multitask_run import MultitaskSetup

        request, start = self.request, self.start
        checkpoint = Checkpoint.open(start.model.folder)
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
            adds=self.adds is not None,
        )

    def _card(self, work: Path, outcome: Outcome, cost: Json) -> str:
        from greenadapt.report.multitask_card import MultitaskCard

        names = [entry.name for entry in self.request.tasks]
        folders = {name: work / TASKS / name if self.adds is None else work for name in names}
        made = read_facts(self.start.model.folder)
        return MultitaskCard(
            model=self.start.model.name if self.adds is None else self.start.model.folder.name,
            base=made["model"]["name"] if made else self.start.model.name,
            given=self.request.model,
            tasks={name: json.loads((folder / TASK_FILE).read_text("utf-8")) for name, folder in folders.items()},
            weights={name: n_weights(folder) for name, folder in folders.items()},
            config=self._config(),
            sources=self.request.sources(),
            scores=json.loads((work / SCORES).read_text("utf-8")),
            examples=outcome.facts["examples"],
            version=__version__,
            is_expanded=(self.start.model.folder / WORDS_FILE).is_file(),
            memory=None if self.start.memory is None else self.start.memory.as_settings(),
            adds=self.adds is not None,
            cost=cost,
        ).text()


def _train_seed(setup: "MultitaskSetup", work: Path, seed: int, folder: Path, finished: list[Json]) -> None:
    """Train and write one seed's model; with the end of this function its memory is free for the next one."""
    from greenadapt.training.multitask_run import MultitaskRun

    run = MultitaskRun(setup, seed, folder, steps_before=sum(one["steps"] for one in finished))
    run.train()
    run.finish(work, is_whole=not finished)
    setup.machine.wait()


def _described(one: "TaskData") -> Json:
    """What ``task.json`` says."""
    own = {"adapter": asdict(one.adapter), "metric": one.metric, "max_length": one.encoder.max_length}
    return {**one.task.settings(), **own}


def _totals(counts: Json) -> Json:
    """Of all tasks together."""
    each = counts["tasks"].values()
    totals = {"tasks": len(each), **{name: sum(one[name] for one in each) for name in ("train", "inputs")}}
    totals |= {kind: sum(sum(one[kind].values()) for one in each) for kind in ("dev", "test")}
    return {**totals, "rows": counts["rows"], "rows_used": counts["rows_used"]}


def _keep_added(session: Session, place: Place, job: Job) -> None:
    """Raise ``ConflictError`` where tasks were added to what is there, and another result would take its place."""
    current = place.current()
    if current is None or not is_multitask(current.folder):
        return
    end_removals(current.folder)
    added = [name for name in task_names(current.folder) if read_task(current.folder, name).is_added]
    if added and (session.force or _is_other(current, job)):
        raise ConflictError(
            f"{place.path} has tasks that were added to it ({', '.join(added)}) and would go if it was trained anew",
            "give another --out, or remove them first with greenadapt tasks FOLDER --remove NAME",
        )


def _keep_task(session: Session, place: Place, job: Job) -> None:
    """Raise ``ConflictError`` where the folder has another task of the name."""
    folder, name = place.path.parent.parent, place.path.name
    same = [one for one in task_names(folder) if one.lower() == name.lower()]
    if not same:
        return
    hint = f"give the new task another name, or remove that one first with greenadapt tasks FOLDER --remove {same[0]}"
    current = place.current()
    if same[0] != name or current is None or not read_task(folder, name).is_added:
        raise ConflictError(f"{folder} has a task {same[0]} already", hint)
    if _is_other(current, job) and not session.force:
        what = describe_difference(current.manifest.config, plain(job.config)) or "other files"
        raise ConflictError(f"{folder} has a task {name} already, added with other settings or files ({what})", hint)


def _is_other(current: Result, job: Job) -> bool:
    return current.manifest.key != Manifest(job.stage, plain(job.config), job.inputs).key
