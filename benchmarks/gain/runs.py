"""One run: fine-tune an arm on a draw of a set under a seed, and record the statistics for the table."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
from records import Records
from trainings import finetune

from gain.arms import ARMS, CONTROL, adapted_model, changed_settings, described, identity
from gain.differences import packed, unpacked, unseen_counts
from gain.sets import LabelledSet, QuestionFold, words_of
from greenadapt import __version__
from greenadapt.checkpoints.layout import LOGITS, SCORES, SEEDS, TASK_FILE, read_described
from greenadapt.checkpoints.source import find_model
from greenadapt.config import CHOSEN_FOR_ENTITIES, Decoding, SessionOptions, TaskConfig, TrainConfig
from greenadapt.cost import Cost
from greenadapt.errors import UsageError
from greenadapt.models.streaming import ViewOutputs, pool_views
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.session import Session
from greenadapt.store.arrays import Array, ArrayFile
from greenadapt.store.files import Json, hash_file, hash_json, to_plain
from greenadapt.store.results import Result
from greenadapt.tasks.base import load_task

VIEWS = ("mean", "base", "expanded")
OTHER_SEED = 1000
"""What is added to a seed for the second of two models that are averaged."""


@dataclass(frozen=True)
class Cell:
    """A model, a set and a number of its training examples (``None``: all); all runs of a cell can be compared."""

    model: str
    of: LabelledSet | QuestionFold
    budget: int | None

    def __str__(self) -> str:
        return f"{self.of.name}, {self.budget or 'all'}"


@dataclass(frozen=True)
class Limits:
    """The limits that all runs share; ``None`` for a number of examples is all."""

    test: int | None = None
    dev: int | None = None
    max_length: int | None = None
    max_tokens: int = SessionOptions.max_tokens
    chunk: int | None = CHOSEN_FOR_ENTITIES["chunk"]
    decoding: Decoding = CHOSEN_FOR_ENTITIES["decoding"]


@dataclass(frozen=True)
class Run:
    """The description of a run, before it is made."""

    cell: Cell
    arm: str
    seed: int
    training: TrainConfig
    train: Path
    measured: Mapping[str, Path]
    """Part of the set (``dev``, ``test``) → its examples."""
    settings: Json
    """All that decides it, models and files by their content."""

    @property
    def key(self) -> str:
        return hash_json(self.settings)[:16]


@dataclass(frozen=True)
class Trained:
    """The scores and statistics of a finished training."""

    scores: dict[str, Json]
    """Part → scores by view."""
    unseen: dict[str, Json]
    """The same of entities with a word that the training examples lack."""
    statistics: dict[str, dict[str, Array]]
    """Part → view, or view and " unseen" → (n_examples, m) additive statistics."""
    steps: int
    cost: Cost


class Lab:
    """The folder of a laboratory, with models and examples, and the folder of its records."""

    def __init__(
        self, session: Session, work: Path, results: Path, corpora: Mapping[str, Path], limits: Limits
    ) -> None:
        self.session = session
        self.work = work
        self.results = results
        self.corpora = corpora
        """Name of a set → its unlabelled text; that of all others under the name "". """
        self.limits = limits
        self._records: dict[str, Records] = {}

    def records(self, name: str) -> Records:
        """Those in the file ``name`` of the results; a cell has one, see ``file_of``."""
        if name not in self._records:
            self.results.mkdir(parents=True, exist_ok=True)
            self._records[name] = Records(self.results / f"{name}.jsonl")
        return self._records[name]

    def run(self, cell: Cell, arm: str, seed: int, training: TrainConfig, label: str = "") -> Json:
        """The record of a run, made if it is missing; ``label`` is added to the arm's name in the table."""
        if (record := self.find(cell, arm, seed, training)) is not None:
            return record
        parts = ("test",) if cell.of.kind == "qa" else ("dev", "test")
        run = self._run_of(cell, arm, seed, training, parts)
        self.session.progress.note(f"{cell}, {arm}{label}, seed {seed}, {training.max_steps} steps")
        result = self._trained(run)
        names = {"model": model_name(cell.model), "set": cell.of.name, "budget": cell.budget, "arm": f"{arm}{label}"}
        statistics_of_test = result.statistics["test"]
        packed_statistics = {
            view: packed(statistics_of_test[view])
            for view in (*result.scores["test"], "mean unseen")
            if view in statistics_of_test
        }
        return self.records(file_of(cell)).add(
            {
                "key": run.key,
                **names,
                "seed": seed,
                "kind": cell.of.kind,
                "corpus": self._corpus(cell).name if ARMS[arm].reads_text else None,
                "steps": result.steps,
                "dev": result.scores.get("dev"),
                "scores": result.scores["test"],
                "unseen": result.unseen["test"],
                "cost": asdict(result.cost),
                "code": code_version(),
                "settings": run.settings,
                "statistics": packed_statistics,
            }
        )

    def find(self, cell: Cell, arm: str, seed: int, training: TrainConfig) -> Json | None:
        parts = ("test",) if cell.of.kind == "qa" else ("dev", "test")
        return self.records(file_of(cell)).by_key.get(self._run_of(cell, arm, seed, training, parts).key)

    def try_out(self, cell: Cell, arm: str, seed: int, training: TrainConfig) -> Json:
        """The record of a run that is measured on the development set alone, made if it is missing."""
        run = self._run_of(cell, arm, seed, training, ("dev",))
        records = self.records(recipe_file(cell.model))
        if (record := records.by_key.get(run.key)) is not None:
            return record
        rate = training.learning_rate
        self.session.progress.note(f"{cell}, {arm}, seed {seed}, {training.max_steps} steps at {rate:g}")
        result = self._trained(run)
        entities = result.statistics["dev"]["mean"][:, 1].sum() if cell.of.kind == "ner" else None
        return records.add(
            {
                "key": run.key,
                "model": model_name(cell.model),
                "set": cell.of.name,
                "budget": cell.budget,
                "arm": arm,
                "seed": seed,
                "learning_rate": rate,
                "batch_size": training.batch_size,
                "steps": result.steps,
                "dev": result.scores["dev"],
                "entities": None if entities is None else int(entities),
                "cost": asdict(result.cost),
                "code": code_version(),
                "settings": run.settings,
            }
        )

    def _run_of(self, cell: Cell, arm: str, seed: int, training: TrainConfig, parts: Sequence[str]) -> Run:
        sets = self.work / "sets"
        train = cell.of.drawn("train", cell.budget, sets, seed)
        measured = {part: cell.of.drawn(part, getattr(self.limits, part), sets) for part in parts}
        train_config = replace(training, **ARMS[arm].training)
        recorded = {
            name: getattr(train_config, name) for name in ("learning_rate", "max_steps", "batch_size", "precision")
        }
        settings = {
            "model": identity(cell.model),
            "adapted": described(self._corpus(cell), ARMS[arm]) if ARMS[arm].reads_text else None,
            "task": self.reading(cell),
            "training": {**recorded, **changed_settings(train_config)},
            "max_tokens": self.limits.max_tokens,
            "budget": cell.budget,
            "train": hash_file(train),
            "measured": {part: hash_file(file) for part, file in measured.items()},
            "seed": seed,
            "control": arm == CONTROL,
        }
        if ARMS[arm].averaged_with and arm != CONTROL:  # the first records say "control" instead
            settings["averaged with"] = ARMS[arm].averaged_with
        if ARMS[arm].other_vectors:
            settings["vectors"] = ARMS[arm].other_vectors
        return Run(cell, arm, seed, train_config, train, measured, dict(to_plain(settings)))

    def _trained(self, run: Run) -> Trained:
        result = self._finetune(run)
        cost = Cost(**{field.name: result.manifest.cost[field.name] for field in fields(Cost)})
        logits = _logits(_seed_folder(result) / LOGITS)
        if any(arm.averaged_with == run.arm for arm in ARMS.values()):
            self._keep_logits(result, run.key)
        if ARMS[run.arm].averaged_with:
            first_logits, first_cost = self._first_of_pair(run)
            logits = {view: (values + first_logits[view]) / 2 for view, values in logits.items()}
            cost += first_cost
        scores, unseen, statistics = _measured(run, result, logits)
        steps = int(read_described(_seed_folder(result) / SCORES)["steps"])
        shutil.rmtree(result.folder)
        return Trained(scores, unseen, statistics, steps, cost)

    def _first_of_pair(self, pair: Run) -> tuple[dict[str, Array], Cost]:
        """The logits and the cost of the model with the run's own seed; another machine's run is made again."""
        arm = ARMS[pair.arm].averaged_with
        run = self._run_of(pair.cell, arm, pair.seed, pair.training, [*pair.measured])
        file = self._logits_file(run.key)
        if not file.is_file():
            self._trained(run)
        record = self.records(file_of(run.cell)).by_key.get(run.key)
        cost = Cost() if record is None else Cost(**record["cost"])
        return _logits(file), cost

    def _finetune(self, run: Run) -> Result:
        cell, arm = run.cell, ARMS[run.arm]
        request = FinetuneRequest.of_one(
            model=self._model(cell, run.arm),
            train=(str(run.train),),
            test=str(joined([*run.measured.values()])),
            task=self._task(cell),
            training=run.training,
            max_tokens=self.limits.max_tokens,
            seeds=(run.seed + OTHER_SEED * bool(arm.averaged_with),),
            save_logits=True,
        )
        return finetune(replace(self.session, out=self.work / "running" / run.key), request)

    def _corpus(self, cell: Cell) -> Path:
        corpus = self.corpora.get(cell.of.name, self.corpora.get(""))
        if corpus is None:
            raise UsageError(f"no text for {cell.of.name}", f"give --corpus FILE or --corpus {cell.of.name}=FILE")
        return corpus

    def _model(self, cell: Cell, arm: str) -> str:
        if not ARMS[arm].reads_text:
            return cell.model
        return _adapted(self.session, self._corpus(cell), cell.model, arm, self.work / "models")

    def reading(self, cell: Cell) -> Json:
        """How the examples of a cell are read, as far as it differs from the defaults."""
        return dict(to_plain({"task": cell.of.kind, **changed_settings(self._task(cell))}))

    def _task(self, cell: Cell) -> TaskConfig:
        task = replace(cell.of.config(), max_length=self.limits.max_length)
        if cell.of.kind == "ner":
            task = replace(task, chunk=self.limits.chunk, decoding=self.limits.decoding)
        return task

    def _keep_logits(self, result: Result, key: str) -> None:
        """Save the logits for an arm that is averaged with this."""
        file = self._logits_file(key)
        file.parent.mkdir(exist_ok=True)
        shutil.copyfile(_seed_folder(result) / LOGITS, file)

    def _logits_file(self, key: str) -> Path:
        return self.work / "logits" / f"{key}.safetensors"


def statistics(record: Json) -> dict[str, Array]:
    """View, or view and " unseen" → (n_examples, m) additive statistics of a run on the test set."""
    return {name: unpacked(packed_array) for name, packed_array in record["statistics"].items()}


def model_name(model: str) -> str:
    """The name of a model in records and files."""
    return find_model(model).name


def recipe_file(model: str) -> str:
    """The file that records the runs by which a model's rate and steps are chosen."""
    return f"recipe-{model_name(model)}"


def file_of(cell: Cell) -> str:
    """The file that records the runs of a cell."""
    return f"gain-{model_name(cell.model)}-{cell.budget or 'all'}"


def joined(files: Sequence[Path]) -> Path:
    """The concatenation of several files; a single file is returned as it is."""
    if len(files) == 1:
        return files[0]
    file = files[0].with_stem("+".join(path.stem for path in files))
    file.write_text("".join(path.read_text("utf-8") for path in files), "utf-8")
    return file


@cache
def code_version() -> str:
    """The version of the program, with the commit of its source tree, and the GPU that it runs on."""
    import torch

    gpu = f" on {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return f"{__version__}{gpu}"
    return f"{__version__} {commit}{gpu}"


def _seed_folder(result: Result) -> Path:
    (seed,) = (result.folder / SEEDS).iterdir()
    return seed


def _logits(path: Path) -> dict[str, Array]:
    """View → logits (n_units of all examples, k); "mean" alone for a model with one tokenization."""
    file = ArrayFile(path)
    if "expanded" not in file:
        return {"mean": file["base"]}
    outputs = ViewOutputs(file["base"], file["expanded"])
    return {
        "mean": pool_views(outputs, "mean"),
        "base": pool_views(outputs, "base"),
        "expanded": pool_views(outputs, "expanded"),
    }


def _measured(
    run: Run, result: Result, logits: Mapping[str, Array]
) -> tuple[dict[str, Json], dict[str, Json], dict[str, dict[str, Array]]]:
    """By part, scores by view, those of entities with words that the training examples lack, and statistics of both."""
    of = run.cell.of
    settings = read_described(result.folder / TASK_FILE)
    trained, task = load_task(settings), of.task(settings)
    offsets = ArrayFile(_seed_folder(result) / LOGITS)["offsets"]
    known_words = words_of(of.read(run.train)) if of.kind == "ner" else frozenset()
    scores: dict[str, Json] = {}
    unseen: dict[str, Json] = {}
    arrays: dict[str, dict[str, Array]] = {}
    first = 0
    for part, file in run.measured.items():
        examples = of.read(file)
        bounds = offsets[first : first + len(examples) + 1]
        first += len(examples)
        scores[part], unseen[part], arrays[part] = {}, {}, {}
        for view, values in logits.items():
            outputs = np.split(values[bounds[0] : bounds[-1]], bounds[1:-1] - bounds[0])
            predictions = [trained.decode(*pair) for pair in zip(examples, outputs, strict=True)]
            arrays[part][view] = of.independent(task.statistics(examples, predictions), examples)
            scores[part][view] = float(task.main_score(arrays[part][view].sum(axis=0)))
            if of.kind == "ner":
                counts = arrays[part][f"{view} unseen"] = unseen_counts(examples, predictions, known_words)
                unseen[part][view] = float(task.main_score(counts.sum(axis=0)))
    return scores, unseen, arrays


@cache
def _adapted(session: Session, corpus: Path, model: str, arm: str, folder: Path) -> str:
    return adapted_model(session, corpus, model, ARMS[arm], folder)
