"""One run: fine-tune one arm on one draw of a set under one seed, and keep what the table is made of."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from trainings import finetune

from gain.arms import ARMS, BASE, CONTROL, adapted_model, given, identity
from gain.differences import unseen_counts
from gain.sets import LabelledSet, QuestionFold, words_of
from gain.trials import TRIALS
from greenadapt.checkpoints.layout import LOGITS, SEEDS, TASK_FILE, read_described
from greenadapt.config import RunConfig, TaskConfig, TrainConfig, UnlabelledConfig
from greenadapt.cost import Cost
from greenadapt.errors import UsageError
from greenadapt.models.example_blocks import ViewOutputs
from greenadapt.models.streaming import pooled
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import Session
from greenadapt.storage.arrays import Array, ArrayFile
from greenadapt.storage.files import Json, hash_file, hash_json, plain
from greenadapt.storage.records import Records
from greenadapt.storage.results import Result
from greenadapt.tasks.base import load_task

VIEWS = ("mean", "base", "expanded")
OTHER_SEED = 1000
"""What is added to a seed for the second of the two models that are averaged in the control."""


@dataclass(frozen=True)
class Cell:
    """A model, a set and how many of its training examples are used (``None``: all); all its runs can be compared."""

    model: str
    of: LabelledSet | QuestionFold
    budget: int | None


@dataclass(frozen=True)
class Limits:
    """What all runs share; ``None`` for a number of examples is all."""

    test: int | None = None
    dev: int | None = None
    max_length: int | None = None
    max_tokens: int = RunConfig.max_tokens


class Lab:
    """The folder of a laboratory: models, ``runs.jsonl``, ``plan.jsonl``, and statistics of each run."""

    def __init__(self, session: Session, work: Path, corpora: Mapping[str, Path], limits: Limits) -> None:
        self.session = session
        self.work = work
        self.corpora = corpora
        """Name of a set → its unlabelled text; that of all others under the name "". """
        self.limits = limits
        self.runs = Records(work / "runs.jsonl")
        self.plans = Records(work / "plan.jsonl")

    def run(self, cell: Cell, arm: str, seed: int, training: TrainConfig, label: str = "") -> Json:
        """The record of a run; it is made unless it is there. ``label`` is added to the arm's name in the table."""
        model = self._model(cell, arm)
        own = replace(training, **ARMS[arm].training)
        train = cell.of.drawn("train", cell.budget, self.work / "sets", seed)
        test = cell.of.drawn("test", self.limits.test, self.work / "sets")
        asked = self._describe(cell, model, own, (train, test), (arm == CONTROL, seed))
        text = self._unlabelled(cell, arm)
        if text is not None:
            asked["unlabelled"] = {"text": hash_file(text), **(ARMS[arm].unlabelled or {})}
        if ARMS[arm].trial:
            asked["trial"] = ARMS[arm].trial
        if (record := self.runs.by_key.get(key := hash_json(asked)[:16])) is not None:
            return record
        self.session.progress.note(f"{cell.of.name}, {cell.budget or 'all'}, {arm}{label}, seed {seed}")
        which = (key, seed + OTHER_SEED * (arm == CONTROL))
        more = {} if text is None else {"unlabelled": str(text)}
        more |= {"unlabelled_config": UnlabelledConfig(**(ARMS[arm].unlabelled or {}))}
        with TRIALS[ARMS[arm].trial]():
            result = self._finetune(cell, model, own, (train, test), which, **more)
        logits = _logits(result)
        if arm == BASE:
            self._keep_logits(result, key)
        cost = Cost(**{field.name: result.manifest.cost[field.name] for field in fields(Cost)})
        if arm == CONTROL:
            base = self.run(cell, BASE, seed, training)
            logits = {"mean": (logits["mean"] + ArrayFile(self._logits_file(base["key"]))["base"]) / 2}
            cost += Cost(**base["cost"])
        scores, arrays = _measured(cell.of, result, logits, (train, test))
        self._write_statistics(key, arrays)
        shutil.rmtree(result.folder)
        names = {"model": cell.model, "set": cell.of.name, "budget": cell.budget, "arm": f"{arm}{label}", "seed": seed}
        corpus = self._corpus(cell).name if ARMS[arm].reads_text else None
        return self.runs.add(
            {
                "key": key,
                **names,
                "corpus": corpus,
                "kind": cell.of.kind,
                **scores,
                "cost": asdict(cost),
                "settings": asked,
            }
        )

    def plan(self, cell: Cell, grid: Mapping[str, list[Any]], training: TrainConfig) -> TrainConfig:
        """The peak rate and epochs of ``grid`` with the best development score of the base model under seed 0."""
        train = cell.of.drawn("train", cell.budget, self.work / "sets", 0)
        dev = cell.of.drawn("dev", self.limits.dev, self.work / "sets")
        model = self._model(cell, BASE)
        found, n_before = [], len(self.plans.by_key)
        for values in product(*grid.values()):
            tried = replace(training, **dict(zip(grid, values, strict=True)))
            asked = self._describe(cell, model, tried, (train, dev), (False, 0))
            key = hash_json(asked)[:16]
            if key not in self.plans.by_key:
                self.session.progress.note(f"{cell.of.name}, {cell.budget or 'all'}, plan, {values}")
                result = self._finetune(cell, model, tried, (train, dev), (key, 0))
                scores, _ = _measured(cell.of, result, _logits(result), (train, dev))
                shutil.rmtree(result.folder)
                names = {
                    "model": cell.model,
                    "set": cell.of.name,
                    "budget": cell.budget,
                    "dev": scores["scores"]["mean"],
                }
                chosen = {name: getattr(tried, name) for name in grid}
                self.plans.add({"key": key, **names, **chosen, "seconds": result.manifest.cost["seconds"]})
            found.append((self.plans.by_key[key]["dev"], tried))
        best = max(found, key=lambda one: one[0])[1]  # the first of equally good ones
        for name, values in grid.items():
            at_edge = len(values) > 1 and getattr(best, name) in (min(values), max(values))
            if at_edge and len(self.plans.by_key) > n_before:  # said once
                self.session.progress.warn(
                    f"{cell.of.name}, {cell.budget or 'all'}: {name} {getattr(best, name):g} is the best and at the "
                    "edge of the grid: widen it"
                )
        return best

    def statistics(self, record: Json) -> dict[str, Array]:
        """View, or view and " unseen" → (n_examples, m) additive statistics of a run."""
        with np.load(self._statistics_file(record["key"])) as file:
            return {name: file[name].astype(np.float64) for name in file.files}

    def _corpus(self, cell: Cell) -> Path:
        corpus = self.corpora.get(cell.of.name, self.corpora.get(""))
        if corpus is None:
            raise UsageError(f"no text for {cell.of.name}", f"give --corpus FILE or --corpus {cell.of.name}=FILE")
        return corpus

    def _model(self, cell: Cell, arm: str) -> str:
        if not ARMS[arm].reads_text:
            return cell.model
        return _adapted(self.session, self._corpus(cell), cell.model, arm, self.work / "models")

    def _task(self, cell: Cell) -> TaskConfig:
        return replace(cell.of.config(), max_length=self.limits.max_length)

    def _describe(
        self, cell: Cell, model: str, training: TrainConfig, files: tuple[Path, Path], which: tuple[bool, int]
    ) -> Json:
        """All that decides a run, models and files by their content."""
        train, measured = map(hash_file, files)
        is_control, seed = which
        shown = {name: getattr(training, name) for name in ("learning_rate", "epochs", "batch_size", "precision")}
        settings = {
            "model": identity(model),
            "task": {"task": cell.of.kind, **given(self._task(cell))},
            "training": {**shown, **given(training)},
            "max_tokens": self.limits.max_tokens,
            "budget": cell.budget,
            "train": train,
            "measured": measured,
            "seed": seed,
            "control": is_control,
        }
        return dict(plain(settings))

    def _unlabelled(self, cell: Cell, arm: str) -> Path | None:
        """The text without labels that an arm is fine-tuned on besides."""
        return None if ARMS[arm].unlabelled is None else self._corpus(cell)

    def _finetune(
        self,
        cell: Cell,
        model: str,
        training: TrainConfig,
        files: tuple[Path, Path],
        which: tuple[str, int],
        **more: Any,
    ) -> Result:
        train, measured = files
        name, seed = which
        request = FinetuneRequest.of_one(
            model=model,
            train=(str(train),),
            test=str(measured),
            task=self._task(cell),
            training=training,
            run=RunConfig(max_tokens=self.limits.max_tokens),
            seeds=(seed,),
            save_logits=True,
            **more,
        )
        return finetune(replace(self.session, out=self.work / "running" / name), request)

    def _keep_logits(self, result: Result, key: str) -> None:
        """Of the base model, for the control."""
        file = self._logits_file(key)
        file.parent.mkdir(exist_ok=True)
        shutil.copyfile(_seed_folder(result) / LOGITS, file)

    def _logits_file(self, key: str) -> Path:
        return self.work / "logits" / f"{key}.safetensors"

    def _write_statistics(self, key: str, arrays: Mapping[str, Array]) -> None:
        file = self._statistics_file(key)
        file.parent.mkdir(exist_ok=True)
        part = file.with_suffix(".part")
        with open(part, "wb") as stream:
            np.savez_compressed(stream, **{name: _small(each) for name, each in arrays.items()})
        part.replace(file)

    def _statistics_file(self, key: str) -> Path:
        return self.work / "statistics" / f"{key}.npz"


def _small(statistics: Array) -> Array:
    """The same numbers as integers, if they are."""
    counts = statistics.astype(np.int16)
    return counts if np.array_equal(counts, statistics) else statistics


def _seed_folder(result: Result) -> Path:
    (seed,) = (result.folder / SEEDS).iterdir()
    return seed


def _logits(result: Result) -> dict[str, Array]:
    """View → logits (n_units of all examples, k); "mean" alone for a model with one tokenization."""
    file = ArrayFile(_seed_folder(result) / LOGITS)
    if "expanded" not in file:
        return {"mean": file["base"]}
    both = ViewOutputs(file["base"], file["expanded"])
    return {"mean": pooled(both, "mean"), "base": pooled(both, "base"), "expanded": pooled(both, "expanded")}


def _measured(
    of: LabelledSet | QuestionFold, result: Result, logits: Mapping[str, Array], files: tuple[Path, Path]
) -> tuple[Json, dict[str, Array]]:
    """Scores by view, those of entities with words that the training examples lack, and the statistics of both."""
    train, measured = files
    settings = read_described(result.folder / TASK_FILE)
    trained, task = load_task(settings), of.task(settings)
    examples, offsets = of.read(measured), ArrayFile(_seed_folder(result) / LOGITS)["offsets"]
    known = words_of(of.read(train)) if of.kind == "ner" else frozenset()
    scores: Json = {"scores": {}, "unseen": {}}
    arrays: dict[str, Array] = {}
    for view, values in logits.items():
        each = np.split(values, offsets[1:-1])
        predictions = [trained.decode(example, one) for example, one in zip(examples, each, strict=True)]
        arrays[view] = of.independent(task.statistics(examples, predictions), examples)
        scores["scores"][view] = float(task.main_score(arrays[view].sum(axis=0)))
        if of.kind == "ner":
            arrays[f"{view} unseen"] = unseen_counts(examples, predictions, known)
            scores["unseen"][view] = float(task.main_score(arrays[f"{view} unseen"].sum(axis=0)))
    return scores, arrays


@cache
def _adapted(session: Session, corpus: Path, model: str, arm: str, folder: Path) -> str:
    return adapted_model(session, corpus, model, ARMS[arm], folder)
