"""The runs of an experiment: each is trained once, scored, and recorded as a line of ``records.jsonl``."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.records import Records
from benchmarks.trainings import finetune
from experiments.recipe import Recipe, SetFiles, Sets
from greenadapt.checkpoints.layout import LOGITS, SCORES, SEEDS, TASK_FILE, read_described
from greenadapt.checkpoints.provenance import adapted_input, starting_model
from greenadapt.corpus.opening import source_input
from greenadapt.errors import GreenadaptError, InputError, LockedError, MissingError
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import Session
from greenadapt.store.files import Json, hash_json, to_plain
from greenadapt.store.results import Result

Cell = tuple[str, str, str]
"""The data set, method and variant of a run."""


@dataclass(frozen=True)
class Run:
    """One model of a table, under one seed."""

    set: str
    method: str
    variant: str
    seed: int

    @property
    def cell(self) -> Cell:
        return self.set, self.method, self.variant

    def __str__(self) -> str:
        return ", ".join(filter(None, [*self.cell, f"seed {self.seed}"]))

    def folder(self, key: str) -> str:
        """The name of its folders; runs with other settings have another ``key``."""
        return "-".join(filter(None, [*self.cell, str(self.seed), key[:8]]))

    def choose(self, methods: Mapping[str, Any]) -> Any:
        """Its method; raises ``InputError`` if there is none of that name."""
        if self.method not in methods:
            raise InputError(f"no method {self.method} for {self.set}", f"the methods are {', '.join(methods)}")
        return methods[self.method]


@dataclass(frozen=True)
class Experiment:
    """What a script runs for the cells of its tables: ``models`` and ``corpora`` by role, and results in ``root``."""

    recipe: Recipe
    session: Session
    sets: Sets
    records: Records
    root: Path
    models: Mapping[str, str]
    corpora: Mapping[str, str]
    done: dict[Cell, list[Json]] = field(default_factory=dict)
    """The records of each cell's seeds."""
    reasons: dict[Cell, str] = field(default_factory=dict)
    """Why other cells have no records."""

    def record(self, run: Run) -> Json:
        """The record of a run, made if it is missing."""
        raise NotImplementedError

    def trainings(self, run: Run) -> list[Run]:
        """The runs that fine-tune what ``run`` needs."""
        return [run]

    def files(self, run: Run) -> SetFiles:
        return self.sets.files(self.recipe.sets[run.set])

    def model(self, role: str) -> str:
        """The model of a role; raises ``MissingError`` if there is none."""
        return self._of_role(self.models, role, f"--model {role}=FOLDER")

    def corpus(self, role: str) -> str:
        """The corpus of a role; raises ``MissingError`` if there is none."""
        return self._of_role(self.corpora, role, f"--corpus {role}=NAME")

    def _of_role(self, names: Mapping[str, str], role: str, option: str) -> str:
        if not names.get(role):
            raise MissingError(f"{self.recipe.name} names nothing for the role {role}", f"give it with {option}")
        return names[role]

    def inner(self, *parts: str) -> Session:
        """A session whose result goes into a folder of the experiment."""
        return replace(self.session, out=self.root.joinpath(*parts), cluster=None)

    def logits_folder(self, run: Run, key: str) -> Path:
        """The folder of what an ensemble needs of a run."""
        return self.root / "kept" / run.folder(key)

    def trained(self, run: Run, request: FinetuneRequest) -> Json:
        """The record of a fine-tuning, made if it is missing; the model itself is removed."""
        settings = described(request)
        key = hash_json([run.method, settings])
        session, logits = self.inner("runs", run.folder(key)), self.logits_folder(run, key)
        if key in self.records.by_key and (logits.is_dir() or not request.save_logits):
            shutil.rmtree(self.root / "runs" / run.folder(key), ignore_errors=True)  # killed after the record was added
            return self.records.by_key[key]
        self.session.progress.note(str(run))
        result = finetune(session, request)
        if request.save_logits:
            copy_logits(result, logits)
        record = self.add(run, key, scores_of(result), result.manifest.cost, {"asked": settings})
        shutil.rmtree(result.folder)
        return record

    def add(self, run: Run, key: str, scores: Json, cost: Mapping[str, Any], entries: Json | None = None) -> Json:
        """Add a record with the seconds and dollars of what it ``cost``, and with further ``entries``."""
        price = {name: cost[name] for name in ("seconds", "usd_low", "usd_high")}
        return self.records.add({**asdict(run), "key": key, "scores": scores, **price, **(entries or {})})

    def attempt(self, run: Run, training: Run) -> Json | None:
        """The record of a training that ``run`` needs; if it cannot be made, ``None``, and ``reasons`` says why."""
        try:
            return self.record(training)
        except LockedError:
            raise
        except GreenadaptError as error:
            if str(error) not in self.reasons.values():
                self.session.progress.warn(f"{run.set}, {run.method}: {error}")
            self.reasons[run.cell] = str(error)
        return None


def scores_of(result: Result) -> Json:
    """All numbers of a fine-tuned model's only seed, on the test set or, of many tasks, by task and on average."""
    scores = read_described(result.folder / SCORES)
    if "tasks" in scores:
        averages = {kind: average["mean"] for kind, average in scores["average"].items()}
        return {"average": averages.get("test", averages.get("dev")), "tasks": scores["tasks"]}
    (seed,) = scores["seeds"]
    return {name: value for name, value in seed["test"].items() if isinstance(value, int | float)}


def copy_logits(result: Result, folder: Path) -> None:
    """Copy what an ensemble needs, whole or not at all."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for file in (result.folder / TASK_FILE, result.folder / SCORES, *result.folder.glob(f"{SEEDS}/*/{LOGITS}")):
        target = part / file.relative_to(result.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def described(request: FinetuneRequest) -> Json:
    """All that decides a fine-tuning, models and files by their content."""
    files = {name: source_input(source)["sha256"] for name, source in request.sources().items()}
    settings: Json = {"model": model_hash(request.model), "files": files, "config": request.config()}
    if request.memory is not None:
        settings |= {"memory": model_hash(request.memory), "memory_config": asdict(request.memory_config)}
    return dict(to_plain(settings))


@cache
def model_hash(model: str) -> str:
    """A hash of what a model consists of."""
    return str(adapted_input(starting_model(model))["sha256"])
