"""The runs of an experiment: each trained once, scored, and kept as a line of ``records.jsonl``."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from greenadapt.checkpoints.layout import LOGITS, SCORES, SEEDS, TASK_FILE
from greenadapt.checkpoints.provenance import adapted_input, starting_model
from greenadapt.corpus.opening import source_input
from greenadapt.errors import MissingError
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.finetune.train import Finetuning, check_finetune, read_scores, run_finetuning
from greenadapt.stages.reproduce.recipe import Recipe
from greenadapt.stages.reproduce.sets import SetFiles, Sets
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, hash_json, plain
from greenadapt.storage.ownership import new_folder, remove_folder, remove_if_own, require_own
from greenadapt.storage.records import Records
from greenadapt.storage.results import Result


@dataclass(frozen=True)
class Run:
    """One model of a table, under one seed."""

    set: str
    method: str
    variant: str
    seed: int

    @property
    def cell(self) -> tuple[str, str, str]:
        """What the runs under other seeds share."""
        return self.set, self.method, self.variant

    @property
    def name(self) -> str:
        """Its name in messages."""
        return ", ".join(filter(None, [self.set, self.method, self.variant, f"seed {self.seed}"]))

    def place(self, key: str) -> str:
        """The name of its folders; other settings are other runs, and stand beside each other."""
        return "-".join(filter(None, [self.set, self.method, self.variant, str(self.seed), key[:8]]))


@dataclass(frozen=True)
class Bench:
    """What all runs of an experiment share."""

    session: Session
    recipe: Recipe
    sets: Sets
    records: Records
    root: Path
    models: Mapping[str, str]
    """By role, in place of those of the recipe."""
    corpora: Mapping[str, str]
    """The same of corpora."""

    def files(self, run: Run) -> SetFiles:
        """The files of the data set."""
        return self.sets.files(self.recipe.sets[run.set])

    def model(self, role: str) -> str:
        """The model of a role; raises ``MissingError`` if there is none."""
        return self._of_role("models", self.models, role, f"--model {role}=FOLDER")

    def corpus(self, role: str) -> str:
        """The corpus of a role; raises ``MissingError`` if there is none."""
        return self._of_role("corpora", self.corpora, role, f"--corpus {role}=NAME")

    def _of_role(self, table: str, given: Mapping[str, str], role: str, option: str) -> str:
        found = given.get(role) or self.recipe.table(table).get(role)
        if not found:
            one = {"models": "model", "corpora": "corpus"}[table]
            raise MissingError(f"{self.recipe.name} names no {one} for the role {role}", f"give it with {option}")
        return str(found)

    def inner(self, *parts: str) -> Session:
        """A session whose result goes into a folder of the experiment."""
        return replace(self.session, out=self.root.joinpath(*parts), cluster=None)

    def finetuning(self, run: Run, request: FinetuneRequest) -> Finetuning | None:
        """What is to be trained for a run; ``None`` if its record is there."""
        key = self.key(run, request)
        if key in self.records.by_key and (self.kept(run, key).is_dir() or not request.save_logits):
            return None
        return check_finetune(self.inner("runs", run.place(key)), request)

    def key(self, run: Run, request: FinetuneRequest) -> str:
        """A hash of all that decides a run, models and files by their content."""
        return hash_json([run.method, described(request)])

    def kept(self, run: Run, key: str) -> Path:
        """The folder of what an ensemble needs of a run."""
        return self.root / "kept" / run.place(key)

    def trained(self, run: Run, request: FinetuneRequest) -> Json:
        """The record of a run, made if it is missing: its scores, seconds and settings; the model itself is removed."""
        key = self.key(run, request)
        finetuning = self.finetuning(run, request)
        if finetuning is None:
            remove_if_own(self.root / "runs" / run.place(key))  # killed after the record was added
            return self.records.by_key[key]
        self.session.progress.note(run.name)
        result = run_finetuning(finetuning)
        if request.save_logits:
            keep(result, self.kept(run, key))
        record = self.add(run, key, scores_of(result), result.manifest.cost, described(request))
        remove_folder(result.folder)
        return record

    def add(self, run: Run, key: str, scores: Json, cost: Mapping[str, Any], asked: Json | None = None) -> Json:
        """Keep a record, with the seconds and dollars of what it ``cost``."""
        spent = {name: cost[name] for name in ("seconds", "usd_low", "usd_high")}
        made: Json = {**asdict(run), "key": key, "scores": scores, **spent}
        return self.records.add(made | ({} if asked is None else {"asked": asked}))


def scores_of(result: Result) -> Json:
    """All numbers of a fine-tuned model's only seed, on the test set or, of many tasks, by task and on average."""
    scores = read_scores(result)
    if "tasks" in scores:
        averages = {kind: each["mean"] for kind, each in scores["average"].items()}
        return {"average": averages.get("test", averages.get("dev")), "tasks": scores["tasks"]}
    (seed,) = scores["seeds"]
    return {name: value for name, value in seed["test"].items() if isinstance(value, int | float)}


def keep(result: Result, folder: Path) -> None:
    """Copy what an ensemble needs, whole or not at all."""
    part = folder.with_name(f".{folder.name}.part")
    new_folder(part)
    require_own(folder)
    remove_folder(folder)
    files = [result.folder / TASK_FILE, result.folder / SCORES, *result.folder.glob(f"{SEEDS}/*/{LOGITS}")]
    for file in files:
        target = part / file.relative_to(result.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    part.rename(folder)


def described(request: FinetuneRequest) -> Json:
    """All that decides a fine-tuning."""
    asked: Json = {
        "model": model_hash(request.model),
        "files": {name: source_input(source)["sha256"] for name, source in request.sources().items()},
        "config": request.config(),
    }
    if request.memory is not None:
        asked |= {"memory": model_hash(request.memory), "memory_config": asdict(request.memory_config)}
    return dict(plain(asked))


def model_hash(model: str) -> str:
    """A hash of what a model consists of."""
    found = starting_model(model)
    changed = max((path.stat().st_mtime_ns for path in found.folder.iterdir()), default=0)
    return _hash(model, changed)


@cache
def _hash(model: str, changed: int) -> str:
    return str(adapted_input(starting_model(model))["sha256"])
