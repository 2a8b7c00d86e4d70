"""Fine-tuning runs on the nodes of a cluster: each seed of each model is a task.

A task trains in the folder where one machine would train the seed, on storage that all nodes share. So a seed whose
node died resumes on another node from its last checkpoint, and this command or the next one finds finished seeds.
"""

import os
import socket
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from greenadapt.checkpoints.layout import SCORES, SEEDS, read_described
from greenadapt.cluster import Cluster, connect
from greenadapt.corpus.opening import visible_files
from greenadapt.cost import Cost, Meter
from greenadapt.errors import ResourceError, UsageError, as_decimal, duration, first_line, pluralize
from greenadapt.progress import Messages, Silent, repeat
from greenadapt.stages.finetune.train import Finetuning, is_finished
from greenadapt.stages.session import Session
from greenadapt.store.files import expand_home
from greenadapt.store.results import Attempts, claim
from greenadapt.workers import launched_processes

_LOG = ".log"


@dataclass(frozen=True)
class _SeedTask:
    """One seed of a run, as it is sent to a node."""

    run: Finetuning
    work: Path
    seed: int
    name: str

    @property
    def folder(self) -> Path:
        return self.work / SEEDS / str(self.seed)


def train_on_cluster(session: Session, runs: Sequence[Finetuning], names: Sequence[str] = ()) -> None:
    """Train the unfinished seeds of ``runs`` on the cluster of the ``session``, if it has one, side by side; messages
    call the runs by ``names``, or by their folders.

    ``finetune`` finds the finished seeds in the folders of the runs. A failed seed is reported with its log, and the
    other seeds go on; then ``ResourceError`` is raised. Raises what ``connect`` raises, and ``InputError`` if a node
    does not see the same folders, models and data.
    """
    if session.cluster is None:
        return
    if launched_processes()[1] > 1:
        raise UsageError("--cluster and a launcher of several processes exclude each other", "leave out one of them")
    with ExitStack() as stack:
        numbers = {run.folder: number for number, run in reversed([*enumerate(runs)])}  # a model may be named twice
        tasks: list[_SeedTask] = []
        for number in numbers.values():
            run = runs[number]
            work = stack.enter_context(claim(run.session.place(run.job), run.job, run.session.progress))
            if work is not None:  # else up to date
                name = names[number] if names else run.folder.name
                tasks += [_SeedTask(_detach(run), work, seed, f"{name}, seed {seed}") for seed in run.request.seeds]
        if not tasks:
            return
        cluster = stack.enter_context(connect(session.cluster))
        for folder in dict.fromkeys(task.run.folder.parent for task in tasks):
            cluster.require_shared(folder)
        cluster.require_files([*{path: None for task in tasks for path in _files(task.run)}])
        unfinished = [task for task in tasks if not is_finished(task.work, task.seed)]
        if n_finished := len(tasks) - len(unfinished):
            session.progress.note(f"{n_finished:,} of {pluralize(len(tasks), 'run')} are finished already")
        _train_all(unfinished, cluster, session)


def _train_all(tasks: Sequence[_SeedTask], cluster: Cluster, session: Session) -> None:
    """Train all seeds; each message of a node is shown once."""
    progress, gpus, cwd = session.progress, cluster.gpus_each(session.gpus_each), str(Path.cwd())
    shown: set[tuple[str, str]] = set()
    failed: list[str] = []
    with progress.bar("fine-tuning", len(tasks), "runs") as bar:
        for task, answer in zip(tasks, cluster.run(_train, tasks, cwd, gpus=gpus), strict=True):
            before = Attempts.read(task.work)
            replace(before, cost=before.cost + answer.cost).write(task.work)
            repeat(answer.messages, shown, progress)
            if answer.error:
                failed.append(f"{task.name} ({answer.error})")
                log = task.folder / _LOG
                progress.warn(f"{task.name}: failed on {answer.node}; the whole error is in {log} ({answer.error})")
            else:
                bar.advance(1)
                progress.note(f"{task.name}: {_score(task)}, {duration(answer.cost.seconds)} on {answer.node}")
    if failed:
        number = pluralize(len(failed), "run")
        raise ResourceError(f"{number} failed, such as {failed[0]}", "the same command trains only those again")


def _detach(run: Finetuning) -> Finetuning:
    """The same run without what only this process has."""
    return replace(run, session=replace(run.session, progress=Silent(), cluster=None))


def _score(task: _SeedTask) -> str:
    """The main score on the test set or, without one, the development set."""
    main, values = task.run.main_scores(read_described(task.folder / SCORES))
    return next((f"{main} {as_decimal(value, 4)}" for value in values.values() if value is not None), "no score")


@dataclass(frozen=True)
class _Answer:
    node: str
    cost: Cost
    messages: tuple[tuple[str, str], ...]
    """``note`` or ``warn``, and the text."""
    error: str = ""


def _train(task: _SeedTask, cwd: str) -> _Answer:
    """Train a seed."""
    progress = Messages()
    error = ""
    with Meter() as meter:
        try:
            os.chdir(cwd)
            task.folder.mkdir(parents=True, exist_ok=True)
            task.run.build_seed(replace(task.run.session, progress=progress), task.work, task.seed)
        except Exception as failure:
            error = f"{type(failure).__name__}: {first_line(failure)}"
            (task.folder / _LOG).write_text(traceback.format_exc(), "utf-8")
    return _Answer(socket.gethostname(), meter.cost, tuple(progress.messages), error)


def _files(run: Finetuning) -> list[Path]:
    """The files on disk that a run reads."""
    models = [run.start.model, *([] if run.start.memory is None else [run.start.memory.model])]
    sources = [expand_home(source).absolute() for source in run.request.sources().values()]
    paths = [path for model in models for path in visible_files(model.folder)]
    return [path for path in [*paths, *sources] if path.exists()]
