"""Fine-tuning runs on the nodes of a cluster: each seed of each model is a task.

A task trains in the folder where one machine would train the seed, on storage that all nodes see. So a seed whose node
died goes on elsewhere from its last checkpoint. What is finished is found by whatever trains next: this command, which
then has nothing left to train, or the next one after a kill.
"""

import os
import socket
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from greenadapt.checkpoints.layout import SCORES, SEEDS, read_described
from greenadapt.checkpoints.source import find_model
from greenadapt.cluster import Cluster, connected
from greenadapt.cost import Cost, Meter
from greenadapt.errors import (
    GreenadaptError,
    InputError,
    ResourceError,
    UsageError,
    counted,
    duration,
    first_line,
    rounded,
)
from greenadapt.progress import Bar, Silent, SilentBar
from greenadapt.stages.finetune.train import Finetuning, is_finished
from greenadapt.stages.session import Session
from greenadapt.storage.files import replace_json
from greenadapt.storage.jobs import Begun, Outcome, begin_job
from greenadapt.storage.own_json import read_own
from greenadapt.workers import launched_processes

_PROGRESS, _LOG = ".progress.json", ".log"
_EVERY = 1.0
"""Seconds between two reports of a task, and between two looks at them."""


@dataclass(frozen=True)
class Failures:
    """Runs of which a seed failed, by number, and what the first of all seeds that failed says."""

    runs: frozenset[int] = frozenset()
    n_seeds: int = 0
    first: str = ""

    def require_all(self) -> None:
        """Raise ``ResourceError`` if any failed."""
        if self.runs:
            raise ResourceError(
                f"{counted(self.n_seeds, 'run')} failed, such as {self.first}",
                "the same command trains only those again",
            )


def train_on_cluster(session: Session, runs: Sequence[Finetuning], names: Sequence[str] = ()) -> Failures:
    """Train the unfinished seeds of ``runs`` on the cluster of the ``session``, side by side; messages call the runs by
    ``names``, or by their folders.

    Those that end are left in the folders where ``finetune`` finds them. A seed that fails is reported, with its log,
    and the others go on. Raises what ``connected`` raises, and ``InputError`` if a node does not see the same folders,
    models and data.
    """
    if session.plan is not None:
        return Failures()
    if launched_processes()[1] > 1:
        raise UsageError("--cluster and a launcher of several processes exclude each other", "leave out one of them")
    if any(run.request.run.report_to for run in runs):
        raise UsageError("--report-to follows one run after the other", "leave it out, or leave out --cluster")
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.session.locked())
        numbers = {run.place.path: number for number, run in reversed([*enumerate(runs)])}  # a model may be given twice
        begun = {
            number: begin_job(runs[number].place, runs[number].job(_not_here), force=session.force)
            for number in numbers.values()
        }
        seeds = [
            _Seed(number, runs[number], each.work, seed, names[number] if names else runs[number].place.path.name)
            for number, each in begun.items()
            if each is not None
            for seed in runs[number].request.seeds
        ]
        if not seeds:
            return Failures()
        cluster = stack.enter_context(connected(session.cluster or ""))
        for folder in dict.fromkeys(one.run.place.path.parent for one in seeds):
            cluster.require_shared(folder)
        for run in {one.number: one.run for one in seeds}.values():
            _require_inputs(cluster, run)
        return _Training(session, cluster, seeds, begun).train()


def _not_here(work: Path) -> Outcome:
    raise AssertionError


@dataclass(frozen=True)
class _Seed:
    """One seed of a run, as it is sent to a node."""

    number: int
    """Of the run."""
    run: Finetuning
    work: Path
    seed: int
    of: str
    """The run's name in messages."""

    @property
    def name(self) -> str:
        return f"{self.of}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.work / SEEDS / str(self.seed)

    @property
    def key(self) -> tuple[int, int]:
        return self.number, self.seed

    @property
    def is_finished(self) -> bool:
        return is_finished(self.work, self.seed)

    @property
    def first_is_finished(self) -> bool:
        return is_finished(self.work, self.run.request.seeds[0])

    def sent(self) -> "_Seed":
        """The same without what stays here."""
        run = self.run
        return replace(self, run=replace(run, session=replace(run.session, progress=Silent(), cluster=None)))

    def score(self) -> str:
        """What it scored on the test set, else on the development set."""
        main, kinds = self.run.main_scores(read_described(self.folder / SCORES))
        return next((f"{main} {rounded(value, 4)}" for value in kinds.values() if value is not None), "no score")


@dataclass(frozen=True)
class _Ended:
    """What a task says at its end."""

    node: str
    cost: Cost
    messages: tuple[tuple[str, str], ...]
    """``note`` or ``warn``, and the text."""
    error: str = ""


def _train(one: _Seed, cwd: str) -> _Ended:
    """Bring a seed as far as possible: unless it is the first, it is finished only after that."""
    progress = _Reporting(one.folder)
    error = ""
    with Meter() as meter:
        try:
            os.chdir(cwd)
            one.folder.mkdir(parents=True, exist_ok=True)
            one.run.build_seed(replace(one.run.session, progress=progress), one.work, one.seed)
        except Exception as failure:
            error = f"{type(failure).__name__}: {first_line(failure)}"
            (one.folder / _LOG).write_text(traceback.format_exc(), "utf-8")
    return _Ended(socket.gethostname(), meter.cost, tuple(progress.messages), error)


def _require_inputs(cluster: Cluster, run: Finetuning) -> None:
    """Raise ``InputError`` naming the node that does not read the same model and data as this machine."""
    here = {name: entry["sha256"] for name, entry in run.inputs().items()}
    for node, there in cluster.on_each_node(_inputs, _Seed(0, run, Path(), 0, "").sent(), str(Path.cwd())).items():
        wrong = there if isinstance(there, str) else _different(here, there)
        if wrong:
            raise InputError(
                f"node {node.address} of the cluster cannot train as this machine does ({wrong})",
                "put models and data on storage that all nodes see under the same path",
            )


def _inputs(one: _Seed, cwd: str) -> dict[str, str] | str:
    """The digest of each input, or why there is one that cannot be read."""
    try:
        os.chdir(cwd)
        find_model(one.run.start.model.source)  # that of a package is unpacked first
        return {name: entry["sha256"] for name, entry in one.run.inputs().items()}
    except Exception as error:
        return first_line(error)


def _different(here: dict[str, str], there: dict[str, str]) -> str:
    names = [name for name, digest in here.items() if there[name] != digest]
    return f"{', '.join(names)}: other content" if names else ""


class _Training:
    """Gives seeds to nodes, and reports how they get on."""

    def __init__(
        self, session: Session, cluster: Cluster, seeds: Sequence[_Seed], begun: Mapping[int, Begun | None]
    ) -> None:
        self._session, self._cluster, self._seeds, self._begun = session, cluster, seeds, begun
        self._costs = {one.number: Cost() for one in seeds}
        self._done: dict[tuple[int, int], float] = {}
        """By ``key``, the share of a seed's steps that are made."""
        self._said: set[tuple[str, str]] = set()
        self._failed: dict[tuple[int, int], str] = {}

    def train(self) -> Failures:
        """Train all; seeds that end before the first one of their run are finished in a second round."""
        left = [one for one in self._seeds if not one.is_finished]
        if len(left) < len(self._seeds):
            done = f"{len(self._seeds) - len(left):,} of {counted(len(self._seeds), 'run')}"
            self._session.progress.note(f"{done} are finished already")
        with self._session.progress.bar("fine-tuning", len(left), "runs") as bar:
            self._round(left, bar)
            self._round([one for one in left if not one.is_finished and one.first_is_finished], bar)
        failed = [one for one in left if one.key in self._failed]
        first = f"{failed[0].name} ({self._failed[failed[0].key]})" if failed else ""
        return Failures(frozenset(one.number for one in failed), len(failed), first)

    def _round(self, seeds: Sequence[_Seed], bar: Bar) -> None:
        under_way = {one.key: one for one in seeds if one.key not in self._failed}
        for one in under_way.values():
            with suppress(OSError):  # of what an earlier command trained
                (one.folder / _PROGRESS).unlink()
        sent, gpus = [one.sent() for one in under_way.values()], self._cluster.gpus_each(self._session.gpus_each)
        ending = self._cluster.as_they_end(
            _train, sent, str(Path.cwd()), cores=self._session.cores_each, gpus=gpus, every=_EVERY
        )
        with closing(ending):
            for ended in ending:
                for one in under_way.values():
                    self._look(one, bar)
                if ended is not None:
                    self._end(under_way.pop(ended[0].key), ended[1], bar)

    def _look(self, one: _Seed, bar: Bar) -> None:
        """Report what a seed says of itself."""
        try:
            said = read_own(one.folder / _PROGRESS, _Said, "seed")
        except (OSError, GreenadaptError):
            return
        if one.key not in self._done:
            self._session.progress.note(f"{one.name}: trains on {said.node}, from step {said.step:,}")
        self._advance(one, said.step / max(said.steps, 1), bar)

    def _advance(self, one: _Seed, share: float, bar: Bar) -> None:
        bar.advance(max(share - self._done.get(one.key, 0.0), 0.0))
        self._done[one.key] = max(share, self._done.get(one.key, 0.0))

    def _end(self, one: _Seed, ended: _Ended | Exception, bar: Bar) -> None:
        progress = self._session.progress
        if isinstance(ended, Exception):
            self._fail(one, str(ended).strip().splitlines()[-1], "")
            return
        self._costs[one.number] += ended.cost
        if (begun := self._begun[one.number]) is not None:
            begun.spend(self._costs[one.number])  # seconds are those of all its tasks together
        for kind, text in ended.messages:
            if (kind, text) not in self._said:
                self._said.add((kind, text))
                (progress.warn if kind == "warn" else progress.note)(text)
        if ended.error:
            self._fail(one, ended.error, f" on {ended.node}; all that it says is in {one.folder / _LOG}")
        elif one.is_finished:
            self._advance(one, 1.0, bar)
            progress.note(f"{one.name}: {one.score()}, {duration(ended.cost.seconds)} on {ended.node}")

    def _fail(self, one: _Seed, why: str, where: str) -> None:
        self._failed[one.key] = why
        self._session.progress.warn(f"{one.name}: failed{where} ({why})")


@dataclass(frozen=True)
class _Said:
    """What a seed says of itself while it is trained."""

    node: str
    step: int
    steps: int


class _Reporting:
    """The progress of a task: steps go into a file that the command looks at, messages are kept for the end."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _PROGRESS
        self.messages: list[tuple[str, str]] = []

    def note(self, message: str) -> None:
        self.messages.append(("note", message))

    def warn(self, message: str) -> None:
        self.messages.append(("warn", message))

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        yield _Steps(self._file, total) if unit == "steps" and total else SilentBar()


class _Steps:
    """The bar of a training."""

    def __init__(self, file: Path, total: float) -> None:
        self._file, self._total = file, total
        self._made = 0.0
        self._next = 0.0

    def advance(self, amount: float, **facts: str) -> None:
        self._made += amount
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        said = {"node": socket.gethostname(), "step": int(self._made), "steps": int(self._total)}
        replace_json(self._file, said)
