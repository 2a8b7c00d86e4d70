"""A training run under one seed: train, measure on the way, go on after a kill, leave model, scores and predictions."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

from safetensors import safe_open

from greenadapt.checkpoints.layout import HISTORY, SCORES
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import RunConfig, TrainConfig
from greenadapt.errors import InputError
from greenadapt.models.embedding_rows import Rows
from greenadapt.models.forward import Inference, outputs
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import GeneralModel, StatesOnDisk
from greenadapt.models.memory.input import MemoryReader
from greenadapt.models.memory_weights import begin_memory, trained_weights
from greenadapt.models.tensors import MemoryInput, write_tensors
from greenadapt.models.weights import TrainedRows
from greenadapt.progress import Progress
from greenadapt.storage.files import Json, write_json, write_lines
from greenadapt.tasks.base import Task
from greenadapt.tasks.features import Encoder, Input
from greenadapt.training.evaluation import Evaluation, KeptInputs
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import Step, Training
from greenadapt.training.stepping import Record, Stepping


@dataclass(frozen=True, kw_only=True)
class RunSetup(ABC):
    """What all runs are made of, and all seeds of one share."""

    checkpoint: Checkpoint
    """What training begins with."""
    train: TrainConfig
    run: RunConfig
    machine: Machine
    progress: Progress
    general: GeneralModel | None = None
    """What the trained model has as its memory."""
    states: Path | None = None
    """Folder where the general model's states are kept; ``None``: they are not."""
    _inputs: dict[str, KeptInputs] = field(init=False, default_factory=dict)

    @property
    @abstractmethod
    def first_encoder(self) -> Encoder:
        """How the trained model reads, with a tokenizer that all tasks have."""

    @cached_property
    def reader(self) -> MemoryReader | None:
        """How the general model reads what the trained one reads."""
        return None if self.general is None else self.general.reader(self.first_encoder)

    def inputs(self, task: Task[Any], encoder: Encoder, examples: Sequence[Any], label: str) -> KeptInputs:
        """The inputs of examples that are measured on, tokenized by the first seed and kept for the others.

        Warns of examples that are cut, as those of ``label``.
        """
        if label not in self._inputs:
            counts = Counter[str]()
            self._inputs[label] = KeptInputs.of(task.inference(examples, encoder, counts))
            if counts["cut"]:
                self.progress.warn(f"{label}: {counts['cut']:,} examples are too long and were cut")
        return self._inputs[label]


Given = TypeVar("Given", bound=RunSetup)
Memories = dict[str, MemoryInput | None]
"""``train``, ``dev`` and ``test`` → where what goes into the memory comes from."""


@dataclass
class _Record(Record):
    best: float | None = None
    best_epoch: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Of several tasks those of each one's steps in the epoch that is under way."""

    def end_epoch(self, step: Step) -> Json:
        row = super().end_epoch(step)
        if self.losses:
            tasks = sorted(self.losses.items())
            row["tasks"] = {name: {"steps": len(each), "loss": sum(each) / len(each)} for name, each in tasks}
        self.losses = {}
        return row


@dataclass(frozen=True, eq=False)
class Measured:
    """Labelled examples that a model is measured on."""

    task: Task[Any]
    encoder: Encoder
    examples: Sequence[Any]
    inputs: KeptInputs
    label: str
    """What the progress bar shows."""
    memory: MemoryInput | None = None
    name: str | None = None
    """The task's, if the model has several."""


class SeedRun(ABC, Generic[Given]):
    """Trains ``setup`` under one seed in ``folder``, where a killed run has left its state."""

    model: Any
    rows: Rows
    """Those of the embedding that the model holds."""
    training: Training

    def __init__(self, setup: Given, seed: int, folder: Path, steps_before: int = 0) -> None:
        self.setup = setup
        self._steps_before = steps_before  # of other seeds: trackers take no step twice
        self.seed = seed
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / ".state"
        self.best = folder / ".best.safetensors"
        self.record = _Record()

    @abstractmethod
    def dev_scores(self) -> Json | None:
        """All scores on development sets, ``None`` where there are none."""

    @abstractmethod
    def score_of(self, dev: Json) -> float | None:
        """By which of ``dev_scores`` epochs are compared, if it has a value."""

    @abstractmethod
    def numbers_of(self, dev: Json) -> dict[str, float]:
        """What trackers are told of ``dev_scores``."""

    @abstractmethod
    def final_scores(self, dev: Json | None) -> Json:
        """What ``scores.json`` has of ``dev``, the scores of the model that is kept, and of test sets.

        Writes the predictions, too.
        """

    @abstractmethod
    def write(self, trained: TrainedRows, whole: Path, *, is_whole: bool) -> None:
        """Write the model into ``whole``, or what sets it apart from that one into ``folder``."""

    @abstractmethod
    def counts(self) -> Json:
        """How many examples there are of each kind, and rows."""

    def train(self) -> None:
        """Make the steps that are left; raises ``KeyboardInterrupt`` or ``SystemExit`` once the state is on disk."""
        setup = self.setup
        if self.training.restore(self.state):
            self.record = _Record.of_state(self.state)
            setup.progress.note(f"seed {self.seed}: going on from step {self.training.number:,}")
        stepping = Stepping(setup.run, setup.machine, setup.progress)
        stepping.make(self.training, self.state, self.record, f"seed {self.seed}", self._after_step)

    def finish(self, whole: Path, *, is_whole: bool) -> None:
        """Measure on the test sets and write everything: the model into ``whole``, or what sets it apart from that one.

        Only the first process does so; raises ``InputError`` where no epoch had a score.
        """
        setup, record, shrink = self.setup, self.record, self.training.shrink
        if not setup.machine.is_first:
            return
        scores: Json = {"seed": self.seed, "steps": self.training.number, "epochs": len(record.epochs)}
        if setup.train.keep == "best":
            if record.best is None:
                raise InputError("no epoch has a score on the development set", "give another one, or --keep last")
            shrink = self._read_best()
        epoch = record.best_epoch if setup.train.keep == "best" else len(record.epochs)
        dev = record.epochs[epoch - 1].get("dev")
        if dev is not None:
            scores["epoch"] = epoch
        scores |= self.final_scores(dev)
        write_lines(self.folder / HISTORY, record.epochs)
        self.write(TrainedRows(self.rows, shrink), whole, is_whole=is_whole)
        # The scores come last and whole: they say that the seed is finished.
        part = self.folder / f".{SCORES}"
        write_json(part, scores | {"counts": self.counts()})
        part.replace(self.folder / SCORES)

    def copy_general_tokenizer(self, folder: Path) -> None:
        """Make a general model that was trained, too, and written into ``folder``, a model's folder of its own."""
        general = self.setup.general
        if general is not None and not general.config.frozen:
            general.copy_tokenizer(folder)

    @property
    def plan(self) -> Plan:
        """How the model is trained."""
        return Plan(self.setup.train, self.setup.run, self.seed)

    def begin(self, feed: Feed) -> Training:
        """The training of the model on ``feed``, before its first step."""
        return Training(self.model, feed, self.setup.machine)

    def attach(self, host: Any, items: Sequence[Input], dev: Iterable[Input]) -> Memories:
        """Give ``host``, the model or its encoder, the general model as its memory, if there is one.

        ``items`` are trained on, and ``dev`` is measured on again and again.
        """
        setup, general, reader = self.setup, self.setup.general, self.setup.reader
        if general is None or reader is None:
            return dict.fromkeys(("train", "dev", "test"))
        general.attach(host, setup.first_encoder, setup.machine, self.seed)
        source = setup.checkpoint.folder
        if begin_memory(host, source) and not self._steps_before:  # all seeds do, the first one says so
            setup.progress.note(f"its memory begins with what {source} has learnt")
        if n_cut := reader.n_cut(items):
            setup.progress.warn(
                f"{n_cut:,} of {len(items):,} training examples are longer in base pieces than the {reader.max_length} "
                "that the general model reads: what is beyond is no memory"
            )
        cached: MemoryInput = reader
        if setup.states is not None:
            kept = StatesOnDisk(setup.states, setup.run, setup.machine, setup.progress)
            cached = kept.open(general, host, reader, chain(items, dev))
        return {"train": cached, "dev": cached, "test": reader}

    def evaluate(self, measured: Measured, *, keep_logits: bool = False) -> Evaluation:
        """Predictions and scores of the model as it is now."""
        setup, encoder, examples = self.setup, measured.encoder, measured.examples
        pool = setup.train.pool if encoder.has_words else None
        inference = Inference(
            setup.run.max_tokens,
            encoder.special.pad,
            setup.machine.autocast,
            memory=measured.memory,
            task=measured.name,
        )
        read = outputs(self.model, self.rows, measured.inputs, inference)
        with setup.progress.bar(f"seed {self.seed}, {measured.label}", len(examples), "examples") as bar:
            return Evaluation.of(measured.task, examples, read, pool, bar, keep_logits=keep_logits)

    def _after_step(self, step: Step, ended: bool) -> None:
        """Keep what is told of a step, and measure where an epoch ended."""
        numbers = asdict(step)
        task = numbers.pop("task")
        self.record.loss += step.loss
        if task is not None:
            self.record.losses.setdefault(task, []).append(step.loss)
            numbers[f"loss_{task}"] = step.loss
        self._log(numbers, step)
        if ended:
            self._end_epoch(step)

    def _log(self, numbers: Json, step: Step) -> None:
        named = {f"seed_{self.seed}/{name}": value for name, value in numbers.items()}
        self.setup.machine.log(named, self._steps_before + step.number)

    def _end_epoch(self, step: Step) -> None:
        record, train = self.record, self.setup.train
        row: Json = {"seed": self.seed, **record.end_epoch(step)}
        dev = self.setup.machine.first(self.dev_scores)
        if dev is not None:
            row["dev"] = dev
            score = self.score_of(dev)
            self._log({f"dev_{name}": value for name, value in self.numbers_of(dev).items()}, step)
            if score is not None and (record.best is None or score > record.best):
                record.best, record.best_epoch = score, step.epoch
                if train.keep == "best":
                    self._write_best()
            record.stopped = train.patience is not None and step.epoch - record.best_epoch >= train.patience
        record.epochs.append(row)

    def _write_best(self) -> None:
        """Keep the weights of the best epoch so far; the state, saved next, says which that is."""
        if self.setup.machine.is_first:
            part = self.best.with_name(self.best.name + ".part")
            write_tensors(trained_weights(self.model), part, {"shrink": repr(self.training.shrink)})
            part.replace(self.best)

    def _read_best(self) -> float:
        """Put the best epoch's weights into the model; returns what decay had done by then to rows not held."""
        with safe_open(self.best, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
            if weights.keys() != trained_weights(self.model).keys():
                raise InputError(f"{self.best} has other weights than the model", f"remove {self.folder} to begin anew")
            self.model.load_state_dict(weights, strict=False)
            return float(file.metadata()["shrink"])


def float_scores(scores: Json) -> dict[str, float]:
    """The scores that are numbers."""
    return {name: value for name, value in scores.items() if isinstance(value, float)}
