"""A fine-tuning run under one seed: train, measure on the way, resume after a kill, leave model, scores, predictions.

One task alone trains a plain model of transformers with a head. Several tasks, or one with an adapter, share an encoder
(arXiv 1902.02671).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from safetensors import safe_open

from greenadapt.checkpoints.layout import HISTORY, LOGITS, PREDICTIONS, SCORES, STATE, TASKS
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import SamplingConfig, SessionOptions, TrainConfig
from greenadapt.errors import InputError
from greenadapt.models.adapters.multitask import head_spec, open_multitask, write_part
from greenadapt.models.forward import TorchRunner
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import GeneralModel, MemoryReader
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import Inference, MemoryInput, ViewOutputs, stream_task
from greenadapt.models.weights import (
    begin_memory,
    open_model,
    trained_table,
    trained_weights,
    write_model,
    write_tensors,
)
from greenadapt.models.word_vector_map import attach_word_vectors
from greenadapt.models.word_vectors import WordVectorReader
from greenadapt.progress import Progress
from greenadapt.store.arrays import write_arrays
from greenadapt.store.files import Json, replacing, write_json, write_lines
from greenadapt.tasks.base import Encoder, Item, TaskData
from greenadapt.tasks.metrics import average, metric_of
from greenadapt.training.batches import TaskDataset
from greenadapt.training.evaluation import Evaluation, stack
from greenadapt.training.loop import RunRecord, Step, Training
from greenadapt.training.sampling import BatchSampler
from greenadapt.vectors.stacked import StackedVectors

_REMEMBERED = 10
_LEARNT = 0.01
"""A training loss at which nearly all of the training labels are learnt."""
Sets = dict[str, dict[str, Json]]
"""Task → name of a set → all of its scores."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSetup:
    """The tasks, the model and the settings that all seeds of a run share."""

    tasks: tuple[TaskData, ...]
    checkpoint: Checkpoint
    """Training starts from this model."""
    train: TrainConfig
    machine: Machine
    progress: Progress
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    max_tokens: int = SessionOptions.max_tokens
    save_logits: bool = False
    general: GeneralModel | None = None
    """The general model that is the memory of the trained one."""
    word_vectors: StackedVectors | None = None
    """The vectors that the trained model reads beside its own states; not with ``general``."""
    hint_seed: int | None = None
    """The seed whose training advises a development set, if the loss is soon small; ``None``: no advice."""
    _inputs: dict[str, list[Item]] = field(init=False, default_factory=dict)

    @property
    def first_encoder(self) -> Encoder:
        """The first task's encoder; those of the others differ only in their maximum length."""
        return self.tasks[0].encoder

    @cached_property
    def reader(self) -> MemoryReader | None:
        """Makes the general model's inputs from those of the trained model."""
        return None if self.general is None else MemoryReader.of(self.first_encoder, self.general.checkpoint)

    @cached_property
    def vector_reader(self) -> WordVectorReader | None:
        """Looks up the vectors of the trained model's inputs."""
        table = self.word_vectors
        return None if table is None else WordVectorReader.of(self.first_encoder.tokenizer, table)

    def inputs(self, data: TaskData, kind: str, name: str) -> list[Item]:
        """The inputs of a set of ``kind`` ``dev`` or ``test``, tokenized once for all seeds.

        Warns of examples that are cut.
        """
        label = data.label(kind, name) if data.name else f"--{kind}"
        if label not in self._inputs:
            counts = Counter[str]()
            self._inputs[label] = list(data.task.inference(getattr(data, kind)[name], data.encoder, counts))
            if counts["cut"]:
                self.progress.warn(f"{label}: {counts['cut']:,} examples are too long and were cut")
        return self._inputs[label]


@dataclass
class _Record(RunRecord):
    best: float | None = None
    best_epoch: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Task → losses of its steps in the current epoch, if there are several tasks."""
    smoothed: dict[str, float] = field(default_factory=dict)
    """Task → exponential mean of its losses, which remembers about ``_REMEMBERED`` steps."""

    def end_epoch(self, step: Step) -> Json:
        row = super().end_epoch(step)
        if self.losses:
            tasks = sorted(self.losses.items())
            row["tasks"] = {name: {"steps": len(losses), "loss": sum(losses) / len(losses)} for name, losses in tasks}
        self.losses = {}
        return row


class SingleTask:
    """The model of a run on a single task, a plain model of transformers with a head, and its files."""

    def __init__(self, setup: FinetuneSetup, rows: Rows, seed: int) -> None:
        self._setup, self._rows = setup, rows
        self.model = self._open(seed)

    def _open(self, seed: int) -> Any:
        """The model of the run, before training."""
        [data] = self._setup.tasks
        head, shape = data.task.head, data.task.head_shape
        return open_model(self._setup.checkpoint, head, data.task.head_config(), self._rows, seed, shape)

    @property
    def host(self) -> Any:
        """The model of transformers, which has the embedding and the memory."""
        return self.model

    def freeze(self) -> None:
        """Freeze the encoder, and its memory, if an adapter says so; after the memory is attached."""

    def score(self, tasks: Sets) -> float | None:
        """The score that compares epochs."""
        [scores] = tasks[""].values()
        return metric_of(scores, self._setup.tasks[0].metric)

    def history_row(self, kind: str, tasks: Sets) -> Json:
        """The scores of the sets of ``kind`` as the history has them."""
        return tasks[""][kind]

    def scores_file(self, kinds: Mapping[str, Json]) -> Json:
        """The entries of ``scores.json`` from the ``history_row`` of each kind."""
        return dict(kinds)

    def counts(self, n_inputs: Mapping[str, int]) -> Json:
        """The number of examples by set, of ``inputs`` of the training examples, and of ``rows``."""
        counts = self._counts(self._setup.tasks[0], n_inputs)
        return {**counts, **{kind: sum(counts[kind].values()) for kind in ("dev", "test")}, **self._n_rows}

    def _counts(self, data: TaskData, n_inputs: Mapping[str, int]) -> Json:
        sets = {
            kind: {name: len(examples) for name, examples in getattr(data, kind).items()} for kind in ("dev", "test")
        }
        return {"train": len(data.train), "inputs": n_inputs[data.name], **sets}

    @property
    def _n_rows(self) -> Json:
        return {"rows": self._setup.checkpoint.n_rows, "rows_used": len(self._rows)}

    def predictions(self, folder: Path, task: str, name: str) -> Path:
        """The file of a seed's predictions for a test set."""
        return folder / PREDICTIONS

    def write(self, folder: Path) -> None:
        """Write the weights of tasks that are not part of the ``host``."""


class SharedTasks(SingleTask):
    """An encoder with a part for each task, and its files, which are laid out by task."""

    def _open(self, seed: int) -> Any:
        tasks = self._setup.tasks
        heads = {data.name: head_spec(data.task, data.adapter) for data in tasks if data.adapter is not None}
        return open_multitask(self._setup.checkpoint, heads, self._rows, seed)

    @property
    def host(self) -> Any:
        return self.model.encoder

    def freeze(self) -> None:
        self.model.freeze()

    def score(self, tasks: Sets) -> float | None:
        """The average over all sets of all tasks."""
        metrics = {data.name: data.metric for data in self._setup.tasks}
        return average(metric_of(scores, metrics[task]) for task, sets in tasks.items() for scores in sets.values())

    def history_row(self, kind: str, tasks: Sets) -> Json:
        return {"average": self.score(tasks), "tasks": tasks}

    def scores_file(self, kinds: Mapping[str, Json]) -> Json:
        """The averages, and the sets by task."""
        tasks = {
            data.name: {kind: row["tasks"][data.name] for kind, row in kinds.items() if data.name in row["tasks"]}
            for data in self._setup.tasks
        }
        return {"average": {kind: row["average"] for kind, row in kinds.items()}, "tasks": tasks}

    def counts(self, n_inputs: Mapping[str, int]) -> Json:
        return {"tasks": {data.name: self._counts(data, n_inputs) for data in self._setup.tasks}, **self._n_rows}

    def predictions(self, folder: Path, task: str, name: str) -> Path:
        task_folder = folder / TASKS / task
        task_folder.mkdir(parents=True, exist_ok=True)
        return task_folder / f"predictions-{name}.jsonl"

    def write(self, folder: Path) -> None:
        for data in self._setup.tasks:
            write_part(self.model, data.name, folder / TASKS / data.name)


class FinetuneRun:
    """Trains ``setup`` under one seed in ``folder``, and resumes from the state of a killed run there.

    If a task's adapter freezes the encoder, all of it is frozen, and its memory too. Epochs are compared by the main
    score, or by the average over the development sets of all tasks (arXiv 1902.02671, table 3).
    """

    def __init__(self, setup: FinetuneSetup, seed: int, folder: Path) -> None:
        self.setup, self.seed, self.folder = setup, seed, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / STATE
        self.record = _Record()
        items = {data.name: data.task.training(data.train, data.encoder, seed, setup.progress) for data in setup.tasks}
        if empty := [name for name, inputs in items.items() if name and not inputs]:
            raise InputError(f"task {empty[0]} has no examples to train on", "give training files that have some")
        measured = (setup.inputs(data, kind, name) for kind in ("dev", "test") for data, name in self._sets(kind))
        self.rows = Rows.of(chain(*items.values(), *measured), setup.first_encoder.special)
        """The rows of the embedding that the model holds."""
        parts = SingleTask if setup.tasks[0].adapter is None else SharedTasks
        self._parts = parts(setup, self.rows, seed)
        self.model = self._parts.model
        self._memory = self._attach([*chain(*items.values())])
        self._parts.freeze()
        self._datasets: dict[str, TaskDataset] = {}
        for data in setup.tasks:
            dataset = TaskDataset.of(
                items[data.name], self.rows, data.task.head, data.encoder.special.pad, self._memory
            )
            self._datasets[data.name] = replace(dataset, task=data.name or None, n_examples=len(data.train))
        sampler = BatchSampler([*self._datasets.values()], setup.train, seed, setup.sampling)
        self.training = Training(self.model, sampler, setup.machine, setup.max_tokens)

    def train(self, later: int = 0) -> None:
        """Make the remaining steps; raises ``KeyboardInterrupt`` or ``SystemExit`` once the state is on disk.

        ``later``: the number of trainings that follow, for the estimate of time.
        """
        setup = self.setup
        if self.training.restore(self.state):
            self.record = _Record.of_state(self.state)
            setup.progress.note(f"seed {self.seed}: resuming from step {self.training.number:,}")
        self.training.run(self.state, self.record, setup.progress, f"seed {self.seed}", self._after_step, later)

    def finish(self, model_folder: Path) -> None:
        """Measure on the test sets, write the scores and the predictions, and the model into ``model_folder``.

        Only the first process does so; raises ``InputError`` if no epoch has a score.
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
        scores["losses"] = {
            name or self.setup.tasks[0].task.name: {"last": loss, "chance": self._datasets[name].chance}
            for name, loss in record.smoothed.items()
        }
        scores |= self._final_scores(dev)
        write_lines(self.folder / HISTORY, record.epochs)
        self._write(shrink, model_folder)
        # The scores are written last and atomically: they mark the seed as finished.
        with replacing(self.folder / SCORES) as part:
            n_inputs = {name: dataset.n_items for name, dataset in self._datasets.items()}
            write_json(part, scores | {"counts": self._parts.counts(n_inputs)})

    def _attach(self, items: Sequence[Item]) -> MemoryInput | None:
        """Give the model, which is trained on ``items``, word vectors, or the general model as its memory; returns what
        reads for it, ``None`` if there is neither.
        """
        setup, general, reader = self.setup, self.setup.general, self.setup.reader
        host, source = self._parts.host, setup.checkpoint.folder
        if setup.vector_reader is not None:
            attach_word_vectors(host, setup.vector_reader.table.dim, self.seed)
            begin_memory(host, source)
            return setup.vector_reader
        if general is None or reader is None:
            return None
        general.attach(host, setup.first_encoder, setup.machine, self.seed)
        if begin_memory(host, source):
            setup.progress.note(f"seed {self.seed}: the memory starts with the weights that {source} has learnt")
        if n_cut := reader.n_cut(items):
            setup.progress.warn(
                f"{n_cut:,} of {len(items):,} training examples are longer in base pieces than the {reader.max_length} "
                "that the general model reads: the rest is ignored"
            )
        return reader

    def _evaluate(self, data: TaskData, kind: str, name: str, *, keep_logits: bool = False) -> Evaluation:
        """Predictions and scores of the current model on a set of ``kind`` ``dev`` or ``test``."""
        setup, examples = self.setup, getattr(data, kind)[name]
        with setup.progress.bar(f"seed {self.seed}, {data.label(kind, name)}", len(examples), "examples") as bar:
            pool = setup.train.pool if data.encoder.has_words else None
            read = self._outputs(data, kind, name)
            return Evaluation.of(data.task, examples, read, pool, bar, keep_logits=keep_logits)

    def _outputs(self, data: TaskData, kind: str, name: str) -> Iterator[ViewOutputs]:
        """The outputs of the current model for a set of ``kind`` ``dev`` or ``test``."""
        setup = self.setup
        inference = Inference(
            setup.max_tokens,
            data.encoder.special.pad,
            setup.machine.autocast,
            memory=self._memory,
            task=data.name or None,
        )
        return stream_task(TorchRunner(self.model, self.rows), setup.inputs(data, kind, name), inference)

    def _sets(self, kind: str) -> Iterator[tuple[TaskData, str]]:
        """Each task, and the name of each of its sets of ``kind`` ``dev`` or ``test``."""
        for data in self.setup.tasks:
            for name in getattr(data, kind):
                yield data, name

    def _dev_scores(self) -> Sets:
        """All scores on the development sets."""
        tasks: Sets = {}
        for data, name in self._sets("dev"):
            tasks.setdefault(data.name, {})[name] = self._evaluate(data, "dev", name).scores
        return tasks

    def _final_scores(self, dev: Json | None) -> Json:
        """The scores in ``scores.json``: ``dev`` as the history has it, and the test sets'; writes the predictions."""
        setup, test = self.setup, Sets()
        for data, name in self._sets("test"):
            evaluation = self._evaluate(data, "test", name, keep_logits=setup.save_logits)
            write_lines(self._parts.predictions(self.folder, data.name, name), evaluation.predictions)
            if setup.save_logits:
                write_arrays(self.folder / LOGITS, stack(evaluation.logits))
            test.setdefault(data.name, {})[name] = evaluation.as_dict()
        kinds = {"dev": dev} if dev else {}
        return self._parts.scores_file(kinds | ({"test": self._parts.history_row("test", test)} if test else {}))

    def _write(self, shrink: float, folder: Path) -> None:
        setup, host = self.setup, self._parts.host
        write_model(host, trained_table(host, self.rows, setup.checkpoint, shrink), folder)
        if setup.general is not None and not setup.general.config.frozen:
            setup.general.copy_tokenizer(folder)
        self._parts.write(folder)

    def _after_step(self, step: Step, ended: bool) -> None:
        """Record a step, and measure if an epoch ended."""
        task = step.task
        self.record.loss += step.loss
        before = self.record.smoothed.get(task or "", step.loss)
        self.record.smoothed[task or ""] = before + (step.loss - before) / _REMEMBERED
        if task is not None:
            self.record.losses.setdefault(task, []).append(step.loss)
        is_quarter = step.number == self.training.n_steps // 4
        if is_quarter and self.seed == self.setup.hint_seed and max(self.record.smoothed.values()) < _LEARNT:
            self.setup.progress.note(
                f"after a quarter of the steps the training loss is below {_LEARNT}: with --dev the best epoch is kept"
            )
        if ended:
            self._end_epoch(step)

    def _end_epoch(self, step: Step) -> None:
        record, train = self.record, self.setup.train
        row: Json = {"seed": self.seed, **record.end_epoch(step)}
        dev = self.setup.machine.run_on_first(self._dev_scores)
        if dev:
            row["dev"] = self._parts.history_row("dev", dev)
            score = self._parts.score(dev)
            if score is not None and (record.best is None or score > record.best):
                if train.keep == "best":
                    self._write_best(step.epoch)
                record.best, record.best_epoch = score, step.epoch
            record.stopped = train.patience is not None and step.epoch - record.best_epoch >= train.patience
        record.epochs.append(row)

    def best_file(self, epoch: int) -> Path:
        """The file of the weights after ``epoch``, from 1, if no earlier epoch has a better score."""
        return self.folder / f".best-{epoch}.safetensors"

    def _write_best(self, epoch: int) -> None:
        """Write the weights of ``epoch``, the best so far.

        The file that the saved state names stays: a killed run resumes from there, and on a GPU a repeated epoch may
        have another score.
        """
        if not self.setup.machine.is_first:
            return
        saved_epoch = _Record.of_state(self.state).best_epoch if self.state.is_file() else 0
        for path in self.folder.glob(".best*"):
            if path != self.best_file(saved_epoch):
                path.unlink()
        with replacing(self.best_file(epoch)) as part:
            write_tensors(trained_weights(self.model), part, {"shrink": repr(self.training.shrink)})

    def _read_best(self) -> float:
        """Load the weights of the best epoch into the model.

        Returns the factor by which weight decay had shrunk the rows that the model does not hold.
        """
        path = self.best_file(self.record.best_epoch)
        with safe_open(path, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
            if weights.keys() != trained_weights(self.model).keys():
                raise InputError(f"{path} has other weights than the model", f"remove {self.folder} and retry")
            self.model.load_state_dict(weights, strict=False)
            return float(file.metadata()["shrink"])
