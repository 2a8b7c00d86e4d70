"""A fine-tuning run under one seed: train, measure on the way, resume after a kill, leave model, scores, predictions.

One task alone trains a plain model of transformers with a head. Several tasks, or one with an adapter, share an encoder
(arXiv 1902.02671).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import safe_open

from greenadapt.checkpoints.layout import HISTORY, LOGITS, PREDICTIONS, SCORES, TASKS
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import Pool, RunConfig, SamplingConfig, TrainConfig, UnlabelledConfig
from greenadapt.errors import InputError
from greenadapt.models.adapters.multitask import head_spec, open_multitask, write_part
from greenadapt.models.forward import outputs
from greenadapt.models.machine import Machine
from greenadapt.models.memory.cache import MemoryReader
from greenadapt.models.memory.general_model import GeneralModel, StatesOnDisk
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import Inference
from greenadapt.models.weights import (
    MemoryInput,
    TrainedRows,
    begin_memory,
    open_model,
    trained_weights,
    write_model,
    write_rows,
    write_tensors,
)
from greenadapt.progress import Progress
from greenadapt.storage.arrays import write_arrays
from greenadapt.storage.files import Json, write_json, write_lines
from greenadapt.tasks.base import Encoder, Input, TaskData
from greenadapt.tasks.metrics import average, metric_of
from greenadapt.training.batches import TaskDataset
from greenadapt.training.evaluation import Evaluation, KeptInputs, stacked
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import RunRecord, Step, Stepping, Training
from greenadapt.training.views import PairedDataset, UnlabelledDataset, unlabelled_inputs

Sets = dict[str, dict[str, Json]]
"""Task → name of a set → all of its scores."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSetup:
    """What all seeds of a run share."""

    tasks: tuple[TaskData, ...]
    checkpoint: Checkpoint
    """The model that training starts from."""
    train: TrainConfig
    run: RunConfig
    machine: Machine
    progress: Progress
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    save_logits: bool = False
    adds: bool = False
    """Whether only the tasks' own weights are written, to add them to a folder that has the encoder."""
    unlabelled: Sequence[Any] = ()
    """Examples without labels, of which both views learn what they predict together; of one task alone."""
    unlabelled_config: UnlabelledConfig = field(default_factory=UnlabelledConfig)
    general: GeneralModel | None = None
    """The general model that the trained one has as its memory."""
    states: Path | None = None
    """Folder for the general model's states; ``None``: they are not kept."""
    _inputs: dict[str, KeptInputs] = field(init=False, default_factory=dict)

    @property
    def first_encoder(self) -> Encoder:
        """The first task's; those of the others differ only in their maximum length."""
        return self.tasks[0].encoder

    @cached_property
    def reader(self) -> MemoryReader | None:
        """How the general model reads what the trained one reads."""
        return None if self.general is None else self.general.reader(self.first_encoder)

    def inputs(self, one: TaskData, kind: str, name: str) -> KeptInputs:
        """The inputs of a set of ``kind`` ``dev`` or ``test``, tokenized by the first seed and kept for the others.

        Warns of examples that are cut.
        """
        label = one.label(kind, name) if one.name else f"--{kind}"
        if label not in self._inputs:
            counts = Counter[str]()
            self._inputs[label] = KeptInputs.of(one.task.inference(getattr(one, kind)[name], one.encoder, counts))
            if counts["cut"]:
                self.progress.warn(f"{label}: {counts['cut']:,} examples are too long and were cut")
        return self._inputs[label]


Memories = dict[str, MemoryInput | None]
"""``train``, ``dev`` and ``test`` → where what goes into the memory comes from."""


@dataclass
class _Record(RunRecord):
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


class SharedTasks:
    """The model of a run: an encoder with a part for each task; and how its files name the tasks."""

    def __init__(self, setup: FinetuneSetup, rows: Rows, seed: int) -> None:
        self._setup, self._rows = setup, rows
        self.model = self._open(seed)

    def _open(self, seed: int) -> Any:
        heads = {one.name: head_spec(one.task, one.adapter) for one in self._setup.tasks if one.adapter is not None}
        return open_multitask(self._setup.checkpoint, heads, self._rows, seed)

    @property
    def host(self) -> Any:
        """The model of transformers, which has the embedding and the memory."""
        return self.model.encoder

    def freeze(self) -> None:
        """Freeze what the tasks' adapters say, once a memory is attached."""
        self.model.freeze()

    def score(self, tasks: Sets) -> float | None:
        """By which epochs are compared: the average over all sets of all tasks."""
        metrics = {one.name: one.metric for one in self._setup.tasks}
        return average(metric_of(scores, metrics[task]) for task, sets in tasks.items() for scores in sets.values())

    def row(self, kind: str, tasks: Sets) -> Json:
        """The scores of the sets of ``kind`` as the history has them."""
        return {"average": self.score(tasks), "tasks": tasks}

    def scores(self, kinds: Mapping[str, Json]) -> Json:
        """The ``row`` of each kind as ``scores.json`` has them: the averages, and by task its sets of each kind."""
        tasks = {
            one.name: {kind: each["tasks"][one.name] for kind, each in kinds.items() if one.name in each["tasks"]}
            for one in self._setup.tasks
        }
        return {"average": {kind: each["average"] for kind, each in kinds.items()}, "tasks": tasks}

    def numbers(self, tasks: Sets) -> dict[str, float]:
        """The scores for trackers: the average, and each score as ``<task>_<set>_<score>``."""
        named = {
            f"{task}_{name}_{score}": value
            for task, sets in tasks.items()
            for name, scores in sets.items()
            for score, value in _float_scores(scores).items()
        }
        return _float_scores({"average": self.score(tasks)}) | named

    def counts(self, n_inputs: Mapping[str, int], n_unlabelled: int) -> Json:
        """By task and set the number of examples and of ``inputs`` made from the training ones; and of ``rows``."""
        return {"tasks": {one.name: self._counts(one, n_inputs) for one in self._setup.tasks}, **self._n_rows}

    def _counts(self, one: TaskData, n_inputs: Mapping[str, int]) -> Json:
        sets = {kind: {name: len(each) for name, each in getattr(one, kind).items()} for kind in ("dev", "test")}
        return {"train": len(one.train), "inputs": n_inputs[one.name], **sets}

    @property
    def _n_rows(self) -> Json:
        return {"rows": self._setup.checkpoint.n_rows, "rows_used": len(self._rows)}

    def _folder(self, folder: Path, task: str) -> Path:
        return folder if self._setup.adds else folder / TASKS / task

    def predictions(self, folder: Path, task: str, name: str) -> Path:
        """Where a seed's predictions for a test set are written."""
        own = self._folder(folder, task)
        own.mkdir(parents=True, exist_ok=True)
        return own / f"predictions-{name}.jsonl"

    def write(self, folder: Path) -> None:
        """Write each task's own weights."""
        for one in self._setup.tasks:
            write_part(self.model, one.name, self._folder(folder, one.name))


class SingleTask(SharedTasks):
    """The same of one task alone, without an adapter: its head is that of transformers, and its files name no task."""

    def _open(self, seed: int) -> Any:
        [one] = self._setup.tasks
        head, shape = one.task.head, one.task.head_shape()
        return open_model(self._setup.checkpoint, head, one.task.head_config(), self._rows, seed, shape)

    @property
    def host(self) -> Any:
        return self.model

    def freeze(self) -> None:
        """All of it is trained."""

    def score(self, tasks: Sets) -> float | None:
        [scores] = tasks[""].values()
        return metric_of(scores, self._setup.tasks[0].metric)

    def row(self, kind: str, tasks: Sets) -> Json:
        return tasks[""][kind]

    def scores(self, kinds: Mapping[str, Json]) -> Json:
        return dict(kinds)

    def numbers(self, tasks: Sets) -> dict[str, float]:
        return _float_scores(tasks[""]["dev"])

    def counts(self, n_inputs: Mapping[str, int], n_unlabelled: int) -> Json:
        own = self._counts(self._setup.tasks[0], n_inputs)
        if self._setup.unlabelled:
            own["unlabelled"] = n_unlabelled
        return {**own, **{kind: sum(own[kind].values()) for kind in ("dev", "test")}, **self._n_rows}

    def predictions(self, folder: Path, task: str, name: str) -> Path:
        return folder / PREDICTIONS

    def write(self, folder: Path) -> None:
        """Its head is part of the model."""


class FinetuneRun:
    """Trains ``setup`` under one seed in ``folder``, where a killed run has left its state.

    If a task's adapter freezes the encoder, all of it is frozen, and its memory too. Epochs are compared by the main
    score, or by the average over the development sets of all tasks (arXiv 1902.02671, table 3).
    """

    def __init__(self, setup: FinetuneSetup, seed: int, folder: Path, steps_before: int = 0) -> None:
        self.setup = setup
        self._steps_before = steps_before  # of other seeds: trackers take no step twice
        self.seed = seed
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / ".state"
        self.best = folder / ".best.safetensors"
        self.record = _Record()
        items = {one.name: self._training_items(one) for one in setup.tasks}
        measured = chain(self._inputs("dev"), self._inputs("test"))
        unlabelled = self._unlabelled_inputs(items)
        self.n_unlabelled = len(unlabelled)
        self.rows = Rows.seen(chain(*items.values(), measured, unlabelled), setup.first_encoder.special)
        """The rows of the embedding that the model holds."""
        self._parts = (SingleTask if setup.tasks[0].adapter is None else SharedTasks)(setup, self.rows, seed)
        self.model = self._parts.model
        self._memory = self._attach([*chain(*items.values())])
        self._parts.freeze()
        datasets = [self._dataset(one, items[one.name]) for one in setup.tasks]
        self.n_inputs = {one.name: dataset.n_items for one, dataset in zip(setup.tasks, datasets, strict=True)}
        plan, size = Plan(setup.train, setup.run, seed), setup.unlabelled_config.unlabelled_batch
        feed = Feed(datasets, plan, setup.sampling, self._unlabelled(unlabelled), size)
        self.training = Training(self.model, feed, setup.machine)

    def train(self) -> None:
        """Make the remaining steps; raises ``KeyboardInterrupt`` or ``SystemExit`` once the state is on disk."""
        setup = self.setup
        if self.training.restore(self.state):
            self.record = _Record.of_state(self.state)
            setup.progress.note(f"seed {self.seed}: going on from step {self.training.number:,}")
        stepping = Stepping(setup.run, setup.machine, setup.progress)
        stepping.make(self.training, self.state, self.record, f"seed {self.seed}", self._after_step)

    def finish(self, whole: Path, *, is_whole: bool) -> None:
        """Measure on the test sets and write everything: the model into ``whole``, or how it differs from that one.

        Only the first process does so; raises ``InputError`` if no epoch had a score.
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
        scores |= self._final_scores(dev)
        write_lines(self.folder / HISTORY, record.epochs)
        self._write(TrainedRows(self.rows, shrink), whole, is_whole=is_whole)
        # The scores come last and whole: they say that the seed is finished.
        part = self.folder / f".{SCORES}"
        write_json(part, scores | {"counts": self._parts.counts(self.n_inputs, self.n_unlabelled)})
        part.replace(self.folder / SCORES)

    def _attach(self, items: Sequence[Input]) -> Memories:
        """Give the model, which is trained on ``items``, the general model as its memory, if there is one."""
        setup, general, reader = self.setup, self.setup.general, self.setup.reader
        if general is None or reader is None:
            return dict.fromkeys(("train", "dev", "test"))
        host = self._parts.host
        general.attach(host, setup.first_encoder, setup.machine, self.seed)
        source = setup.checkpoint.folder
        if begin_memory(host, source) and not self._steps_before:  # every seed does, the first reports it
            setup.progress.note(f"its memory begins with what {source} has learnt")
        if n_cut := reader.n_cut(items):
            setup.progress.warn(
                f"{n_cut:,} of {len(items):,} training examples are longer in base pieces than the {reader.max_length} "
                "that the general model reads: the rest is ignored"
            )
        cached: MemoryInput = reader
        if setup.states is not None:
            kept = StatesOnDisk(setup.states, setup.run, setup.machine, setup.progress)
            cached = kept.open(general, host, reader, chain(items, self._inputs("dev")))
        return {"train": cached, "dev": cached, "test": reader}

    def _evaluate(
        self, one: TaskData, kind: str, name: str, pool: Pool | None = None, *, keep_logits: bool = False
    ) -> Evaluation:
        """Predictions and scores of the model as it is now on a set of ``kind`` ``dev`` or ``test``.

        ``None`` is the pool of the settings.
        """
        setup, examples = self.setup, getattr(one, kind)[name]
        inference = Inference(
            setup.run.max_tokens,
            one.encoder.special.pad,
            setup.machine.autocast,
            memory=self._memory[kind],
            task=one.name or None,
        )
        read = outputs(self.model, self.rows, setup.inputs(one, kind, name), inference)
        with setup.progress.bar(f"seed {self.seed}, {one.label(kind, name)}", len(examples), "examples") as bar:
            chosen = (pool or setup.train.pool) if one.encoder.has_words else None
            return Evaluation.of(one.task, examples, read, chosen, bar, keep_logits=keep_logits)

    def _training_items(self, one: TaskData) -> list[Input]:
        """What a task trains on; raises ``InputError`` if that is nothing."""
        items = one.task.training(one.train, one.encoder, self.seed, self.setup.progress)
        if not items and one.name:
            raise InputError(f"task {one.name} has no examples to train on", "give training files that have some")
        return items

    def _inputs(self, kind: str) -> Iterator[Input]:
        """What is read in sets of ``kind`` ``dev`` or ``test``."""
        for one, name in self._sets(kind):
            yield from self.setup.inputs(one, kind, name)

    def _dataset(self, one: TaskData, items: Sequence[Input]) -> TaskDataset | PairedDataset:
        pad, memory, agreement = one.encoder.special.pad, self._memory["train"], self.setup.train.agreement
        dataset = TaskDataset.of(items, self.rows, one.task.head, pad, memory)
        dataset = replace(dataset, task=one.name or None, n_examples=len(one.train))
        return PairedDataset.of(dataset, items, agreement) if agreement else dataset

    def _unlabelled_inputs(self, items: Mapping[str, Sequence[Input]]) -> list[Input]:
        """Those of the examples without labels, beside the only task's ``items``: as many as all steps read, since each
        word that occurs needs memory.
        """
        train, examples = self.setup.train, self.setup.unlabelled
        if not examples:
            return []
        [one] = self.setup.tasks
        labelled = items[one.name]
        steps = train.epochs * -(-2 * len(labelled) // train.batch_size)
        steps = min(steps, train.max_steps or steps)
        return unlabelled_inputs(one, examples, labelled, steps * self.setup.unlabelled_config.unlabelled_batch)

    def _unlabelled(self, inputs: Sequence[Input]) -> UnlabelledDataset | None:
        if not inputs:
            return None
        [one] = self.setup.tasks
        dataset = TaskDataset.of(inputs, self.rows, one.task.head, one.encoder.special.pad)
        return UnlabelledDataset.of(dataset, inputs, self.setup.unlabelled_config.unlabelled_weight)

    def _sets(self, kind: str) -> Iterator[tuple[TaskData, str]]:
        for one in self.setup.tasks:
            for name in getattr(one, kind):
                yield one, name

    def _dev_scores(self) -> Sets:
        """All scores on the development sets, and the pool that they choose, if they do."""
        tasks: Sets = {}
        for one, name in self._sets("dev"):
            found = self._evaluate(one, "dev", name)
            chosen = {"pool": found.pool} if self.setup.train.pool == "best" else {}
            tasks.setdefault(one.name, {})[name] = found.scores | chosen
        return tasks

    def _final_scores(self, dev: Json | None) -> Json:
        """The scores in ``scores.json``: ``dev`` as the history has it, and the test sets'; writes the predictions."""
        setup, test = self.setup, Sets()
        chosen = {"pool": dev["pool"]} if dev and setup.train.pool == "best" else {}
        for one, name in self._sets("test"):
            evaluation = self._evaluate(one, "test", name, chosen.get("pool"), keep_logits=setup.save_logits)
            write_lines(self._parts.predictions(self.folder, one.name, name), evaluation.predictions)
            if setup.save_logits:
                write_arrays(self.folder / LOGITS, stacked(evaluation.logits))
            test.setdefault(one.name, {})[name] = evaluation.as_dict() | chosen
        kinds = {"dev": dev} if dev else {}
        return self._parts.scores(kinds | ({"test": self._parts.row("test", test)} if test else {}))

    def _write(self, trained: TrainedRows, whole: Path, *, is_whole: bool) -> None:
        """Write the model into ``whole``, or how it differs from that one into the seed's folder."""
        setup, folder = self.setup, whole if is_whole else self.folder
        if not setup.adds:
            if is_whole:
                write_model(self._parts.host, trained, setup.checkpoint, whole)
            else:
                write_rows(self._parts.host, trained, setup.checkpoint, Checkpoint.open(whole), folder)
            if setup.general is not None and not setup.general.config.frozen:
                setup.general.copy_tokenizer(folder)
        self._parts.write(folder)

    def _after_step(self, step: Step, ended: bool) -> None:
        """Record a step, and measure if an epoch ended."""
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
        dev = self.setup.machine.first(self._dev_scores)
        if dev:
            row["dev"] = self._parts.row("dev", dev)
            score = self._parts.score(dev)
            self._log({f"dev_{name}": value for name, value in self._parts.numbers(dev).items()}, step)
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
        """Put the best epoch's weights into the model; returns the shrinkage by then of rows that it does not hold."""
        with safe_open(self.best, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
            if weights.keys() != trained_weights(self.model).keys():
                raise InputError(f"{self.best} has other weights than the model", f"remove {self.folder} and retry")
            self.model.load_state_dict(weights, strict=False)
            return float(file.metadata()["shrink"])


def _float_scores(scores: Json) -> dict[str, float]:
    """The scores that are numbers."""
    return {name: value for name, value in scores.items() if isinstance(value, float)}
