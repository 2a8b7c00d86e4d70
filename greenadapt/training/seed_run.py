"""One seed of a fine-tuning run: train, measure on the way, go on after a kill, leave model, scores and predictions."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from greenadapt.arrays import write_arrays
from greenadapt.checkpoint import Checkpoint
from greenadapt.config import RunConfig, TrainConfig
from greenadapt.errors import InputError
from greenadapt.features import Encoder, Views
from greenadapt.progress import Progress
from greenadapt.store import write_json, write_lines
from greenadapt.tasks import Json, Task
from greenadapt.training.batches import FeatureTable
from greenadapt.training.evaluation import Evaluation, Evaluator, stacked
from greenadapt.training.general_model import GeneralModel, StatesOnDisk
from greenadapt.training.inference import Inference, outputs
from greenadapt.training.layout import HISTORY, LOGITS, PREDICTIONS, SCORES
from greenadapt.training.loop import Plan, Step, Training
from greenadapt.training.machine import Machine
from greenadapt.training.memory_files import begin_memory, trained_weights
from greenadapt.training.memory_input import MemoryInput, MemoryReader
from greenadapt.training.models import TrainedRows, open_model, write_model, write_rows
from greenadapt.training.rows import Rows
from greenadapt.training.state import RECORD
from greenadapt.training.stepping import Record, Stepping


@dataclass(frozen=True)
class Examples:
    """The labelled examples of one task, by what they are for."""

    train: Sequence[Any]
    dev: Sequence[Any] | None = None
    test: Sequence[Any] | None = None


@dataclass(frozen=True)
class Setup:
    """What all seeds of a run share."""

    task: Task[Any]
    checkpoint: Checkpoint
    encoder: Encoder
    examples: Examples
    train: TrainConfig
    run: RunConfig
    machine: Machine
    progress: Progress
    save_logits: bool = False
    general: GeneralModel | None = None
    """What the trained model has as its memory."""
    states: Path | None = None
    """Folder where the general model's states are kept; ``None``: they are not."""

    @cached_property
    def reader(self) -> MemoryReader | None:
        """How the general model reads what the trained one reads."""
        return None if self.general is None else self.general.reader(self.encoder)


@dataclass
class _Record(Record):
    best: float | None = None
    best_epoch: int = 0


class SeedRun:
    """Trains ``setup`` under one seed in ``folder``, where a killed run has left its state."""

    def __init__(self, setup: Setup, seed: int, folder: Path, steps_before: int = 0) -> None:
        self.setup = setup
        self._steps_before = steps_before  # of other seeds: trackers take no step twice
        self.seed = seed
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / ".state"
        self.best = folder / ".best.safetensors"
        self.record = _Record()
        task, encoder, progress = setup.task, setup.encoder, setup.progress
        items = task.training(setup.examples.train, encoder, seed, progress)
        special = encoder.special
        self.rows = Rows.of(chain(items, self._seen()), special.pad, (special.cls, special.sep, special.unk))
        self.model = open_model(setup.checkpoint, task.head, task.head_config(), self.rows, seed)
        self._memory = self._attached(items)
        table = FeatureTable.of(items, self.rows, task.head, special.pad, self._memory["train"])
        self.n_inputs = table.n_items
        self.training = Training(self.model, table, Plan(setup.train, setup.run, seed), setup.machine)

    def _attached(self, items: Sequence[Views]) -> dict[str, MemoryInput | None]:
        """Give the model its memory, and say where what goes into it comes from, for training, ``dev`` and ``test``."""
        setup, general, reader = self.setup, self.setup.general, self.setup.reader
        if general is None or reader is None:
            return dict.fromkeys(("train", "dev", "test"))
        general.attach(self.model, setup.encoder, setup.machine, self.seed)
        source = setup.checkpoint.folder
        if begin_memory(self.model, source) and not self._steps_before:  # all seeds do, the first one says so
            setup.progress.note(f"its memory begins with what {source} has learnt")
        if n_cut := reader.n_cut(items):
            setup.progress.warn(
                f"{n_cut:,} of {len(items):,} training examples are longer in base pieces than the {reader.max_length} "
                "that the general model reads: what is beyond is no memory"
            )
        cached: MemoryInput = reader
        if setup.states is not None:
            kept = StatesOnDisk(setup.states, setup.run, setup.machine, setup.progress)
            dev = setup.task.inference(setup.examples.dev or (), setup.encoder)
            cached = kept.open(general, self.model, reader, chain(items, dev))
        return {"train": cached, "dev": cached, "test": reader}

    def _seen(self) -> Iterator[Views]:
        """What is read but not trained on."""
        for name, examples in (("dev", self.setup.examples.dev), ("test", self.setup.examples.test)):
            counts = Counter[str]()
            yield from self.setup.task.inference(examples or (), self.setup.encoder, counts)
            if counts["cut"]:
                self.setup.progress.warn(f"--{name}: {counts['cut']:,} examples are too long and were cut")

    def train(self) -> None:
        """Make the steps that are left; raises ``KeyboardInterrupt`` or ``SystemExit`` once the state is on disk."""
        setup = self.setup
        if self.training.restore(self.state):
            self.record = _Record(**json.loads((self.state / RECORD).read_text("utf-8")))
            setup.progress.note(f"seed {self.seed}: going on from step {self.training.number:,}")
        stepping = Stepping(setup.run, setup.machine, setup.progress)
        stepping.make(self.training, self.state, self.record, f"seed {self.seed}", self._after_step)

    def _after_step(self, step: Step, ended: bool) -> None:
        """Keep what is told of a step, and measure where an epoch ended."""
        self.record.loss += step.loss
        self._log(asdict(step), step)
        if ended:
            self._end_epoch(step)

    def _log(self, numbers: Json, step: Step) -> None:
        named = {f"seed_{self.seed}/{name}": value for name, value in numbers.items()}
        self.setup.machine.log(named, self._steps_before + step.number)

    def _end_epoch(self, step: Step) -> None:
        record, train = self.record, self.setup.train
        row: Json = {"seed": self.seed, **record.end_epoch(step)}
        if self.setup.examples.dev is not None:
            row["dev"] = self.setup.machine.first(lambda: self._evaluate(self.setup.examples.dev, "dev").scores)
            score = row["dev"][self.setup.task.main]
            numbers = {name: value for name, value in row["dev"].items() if isinstance(value, float)}
            self._log({f"dev_{name}": value for name, value in numbers.items()}, step)
            if score is not None and (record.best is None or score > record.best):
                record.best, record.best_epoch = score, step.epoch
                if train.keep == "best":
                    self._write_best()
            record.stopped = train.patience is not None and step.epoch - record.best_epoch >= train.patience
        record.epochs.append(row)

    def _write_best(self) -> None:
        """Keep the weights of the best epoch so far; the state, saved next, says which that is."""
        if self.setup.machine.is_first:
            weights = {name: weight.detach().contiguous() for name, weight in trained_weights(self.model).items()}
            part = self.best.with_name(self.best.name + ".part")
            save_file(weights, part, {"shrink": repr(self.training.shrink)})
            part.replace(self.best)

    def _read_best(self) -> float:
        """Put the best epoch's weights into the model; returns what decay had done by then to rows not held."""
        with safe_open(self.best, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
            if weights.keys() != trained_weights(self.model).keys():
                raise InputError(f"{self.best} has other weights than the model", f"remove {self.folder} to begin anew")
            self.model.load_state_dict(weights, strict=False)
            return float(file.metadata()["shrink"])

    def finish(self, whole: Path, *, is_whole: bool) -> None:
        """Measure on the test set and write everything: the model into ``whole``, or what sets it apart from that one.

        Only the first process does so; raises ``InputError`` where no epoch had a score.
        """
        setup, record, shrink = self.setup, self.record, self.training.shrink
        if not setup.machine.is_first:
            return
        scores: Json = {"seed": self.seed, "steps": self.training.number, "epochs": len(record.epochs)}
        if setup.train.keep == "best":
            if record.best is None:
                raise InputError("no epoch has a score on the development set", "give another --dev, or --keep last")
            shrink = self._read_best()
        if setup.examples.dev is not None:
            epoch = record.best_epoch if setup.train.keep == "best" else len(record.epochs)
            scores |= {"dev": record.epochs[epoch - 1]["dev"], "epoch": epoch}
        if setup.examples.test is not None:
            scores["test"] = self._test()
        write_lines(self.folder / HISTORY, record.epochs)
        trained = TrainedRows(self.rows, shrink)
        if is_whole:
            write_model(self.model, trained, setup.checkpoint, whole)
        else:
            write_rows(self.model, trained, setup.checkpoint, Checkpoint.open(whole), self.folder)
        if setup.general is not None and not setup.general.config.frozen:
            setup.general.copy_tokenizer(whole if is_whole else self.folder)
        # The scores come last and whole: they say that the seed is finished.
        part = self.folder / f".{SCORES}"
        write_json(part, scores | {"counts": self._counts()})
        part.replace(self.folder / SCORES)

    def _test(self) -> Json:
        evaluation = self._evaluate(self.setup.examples.test, "test")
        write_lines(self.folder / PREDICTIONS, evaluation.predictions)
        if self.setup.save_logits:
            write_arrays(self.folder / LOGITS, stacked(evaluation.logits))
        return evaluation.as_dict()

    def _counts(self) -> Json:
        examples = self.setup.examples
        return {
            "train": len(examples.train),
            "inputs": self.n_inputs,
            "dev": len(examples.dev or ()),
            "test": len(examples.test or ()),
            "rows": self.setup.checkpoint.n_rows,
            "rows_used": len(self.rows),
        }

    def _evaluate(self, examples: Sequence[Any] | None, label: str) -> Evaluation:
        setup = self.setup
        evaluator = Evaluator(setup.task, setup.encoder, examples or (), setup.train.pool)
        pad, memory = setup.encoder.special.pad, self._memory[label]
        inference = Inference(setup.run.max_tokens, pad, setup.machine.autocast, memory=memory)
        run = partial(outputs, self.model, self.rows, run=inference)
        with setup.progress.bar(f"seed {self.seed}, {label}", len(examples or ()), "examples") as bar:
            return evaluator.evaluate(run, bar, keep_logits=setup.save_logits and label == "test")
