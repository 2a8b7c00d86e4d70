"""A fine-tuning run with one seed: train, evaluate, resume after a kill, and write model, scores and predictions.

A single task without adapter trains a plain model of transformers with a head. Several tasks, or one with an adapter,
share an encoder (arXiv 1902.02671).
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
from greenadapt.training.evaluation import CachedInputs, Evaluation, stacked
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import RunRecord, Step, Stepping, Training
from greenadapt.training.views import PairedDataset, UnlabelledDataset, unlabelled_inputs

SetScores = dict[str, dict[str, Json]]
"""Task → name of a set → its scores."""


@dataclass(frozen=True, kw_only=True)
class FinetuneSetup:
    """The tasks, the model and the settings of a run, the same for all seeds."""

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
    """Whether to write only the weights of the tasks, to add them to a folder with the encoder."""
    unlabelled: Sequence[Any] = ()
    """Unlabelled examples of the only task, on which the views learn from their mean prediction."""
    unlabelled_config: UnlabelledConfig = field(default_factory=UnlabelledConfig)
    general: GeneralModel | None = None
    """The general model that is the memory of the trained one."""
    states: Path | None = None
    """Folder of the cached states of the general model; ``None``: no cache."""
    _inputs: dict[str, CachedInputs] = field(init=False, default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether a plain model of transformers is trained: there is one task, without adapter."""
        return self.tasks[0].adapter is None

    @property
    def first_encoder(self) -> Encoder:
        """The encoder of the first task; other tasks' encoders differ only in the maximum length."""
        return self.tasks[0].encoder

    @cached_property
    def reader(self) -> MemoryReader | None:
        """Reads the inputs of the trained model for the general model."""
        return None if self.general is None else self.general.reader(self.first_encoder)

    def inputs(self, data: TaskData, kind: str, name: str) -> CachedInputs:
        """The inputs of a set of ``kind`` ``dev`` or ``test``, which the first seed tokenizes for all; warns of
        truncated examples.
        """
        label = data.label(kind, name) if data.name else f"--{kind}"
        if label not in self._inputs:
            counts = Counter[str]()
            self._inputs[label] = CachedInputs.of(data.task.inference(getattr(data, kind)[name], data.encoder, counts))
            if counts["cut"]:
                self.progress.warn(f"{label}: {counts['cut']:,} examples are too long and were cut")
        return self._inputs[label]


Memories = dict[str, MemoryInput | None]
"""``train``, ``dev`` and ``test`` → the source of the inputs of the memory."""


@dataclass
class _Record(RunRecord):
    best: float | None = None
    best_epoch: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Task → losses of its steps in the current epoch, if there are several tasks."""

    def end_epoch(self, step: Step) -> Json:
        row = super().end_epoch(step)
        if self.losses:
            tasks = sorted(self.losses.items())
            row["tasks"] = {name: {"steps": len(losses), "loss": sum(losses) / len(losses)} for name, losses in tasks}
        self.losses = {}
        return row


class FinetuneRun:
    """Trains ``setup`` with one seed in ``folder``, and resumes from the state of a killed run there.

    If a task's adapter freezes the encoder, the whole encoder and its memory are frozen. Epochs are compared by the
    main score, or by the average over the development sets of all tasks (arXiv 1902.02671, table 3).
    """

    def __init__(self, setup: FinetuneSetup, seed: int, folder: Path, steps_before: int = 0) -> None:
        self.setup = setup
        self._steps_before = steps_before  # of earlier seeds, since trackers need increasing steps
        self.seed = seed
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / ".state"
        self.best = folder / ".best.safetensors"
        self.record = _Record()
        items = {data.name: self._training_items(data) for data in setup.tasks}
        evaluated = chain(self._inputs("dev"), self._inputs("test"))
        unlabelled = self._unlabelled_inputs(items)
        self.n_unlabelled = len(unlabelled)
        self.rows = Rows.seen(chain(*items.values(), evaluated, unlabelled), setup.first_encoder.special)
        """The rows of the embedding in the model."""
        self.model = self._open()
        self._memory = self._attach([*chain(*items.values())])
        if not setup.is_plain:
            self.model.freeze()
        datasets = [self._dataset(data, items[data.name]) for data in setup.tasks]
        self.n_inputs = {data.name: dataset.n_items for data, dataset in zip(setup.tasks, datasets, strict=True)}
        plan, size = Plan(setup.train, setup.run, seed), setup.unlabelled_config.unlabelled_batch
        feed = Feed(datasets, plan, setup.sampling, self._unlabelled(unlabelled), size)
        self.training = Training(self.model, feed, setup.machine)

    @property
    def host(self) -> Any:
        """The model of transformers: the plain model, or the encoder that tasks share."""
        return self.model if self.setup.is_plain else self.model.encoder

    def train(self) -> None:
        """Make the remaining steps; raises ``KeyboardInterrupt`` or ``SystemExit`` for a stop, once the state is
        saved.
        """
        setup = self.setup
        if self.training.restore(self.state):
            self.record = _Record.of_state(self.state)
            setup.progress.note(f"seed {self.seed}: going on from step {self.training.number:,}")
        stepping = Stepping(setup.run, setup.machine, setup.progress)
        stepping.make(self.training, self.state, self.record, f"seed {self.seed}", self._after_step)

    def finish(self, whole: Path, *, is_whole: bool) -> None:
        """Evaluate on the test sets, and write everything: the model into ``whole``, or its difference from that model.

        Only the first process does so. Raises ``InputError`` if no epoch has a score.
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
        # The scores are written last, and atomically: they mark the seed as finished.
        part = self.folder / f".{SCORES}"
        write_json(part, scores | {"counts": self._counts()})
        part.replace(self.folder / SCORES)

    def _attach(self, items: Sequence[Input]) -> Memories:
        """Attach the general model as memory, if there is one, and return the sources of its inputs."""
        setup, general, reader = self.setup, self.setup.general, self.setup.reader
        if general is None or reader is None:
            return dict.fromkeys(("train", "dev", "test"))
        host = self.host
        general.attach(host, setup.first_encoder, setup.machine, self.seed)
        source = setup.checkpoint.folder
        if begin_memory(host, source) and not self._steps_before:  # every seed does, only the first reports it
            setup.progress.note(f"its memory begins with what {source} has learnt")
        if n_cut := reader.n_cut(items):
            setup.progress.warn(
                f"{n_cut:,} of {len(items):,} training examples are longer in base pieces than the {reader.max_length} "
                "that the general model reads: further pieces are ignored"
            )
        cached: MemoryInput = reader
        if setup.states is not None:
            states = StatesOnDisk(setup.states, setup.run, setup.machine, setup.progress)
            cached = states.open(general, host, reader, chain(items, self._inputs("dev")))
        return {"train": cached, "dev": cached, "test": reader}

    def _evaluate(
        self, data: TaskData, kind: str, name: str, pool: Pool | None = None, *, keep_logits: bool = False
    ) -> Evaluation:
        """Predictions and scores of the current model on a set of ``kind`` ``dev`` or ``test``.

        ``pool`` is by default that of the settings.
        """
        setup, examples = self.setup, getattr(data, kind)[name]
        inference = Inference(
            setup.run.max_tokens,
            data.encoder.special.pad,
            setup.machine.autocast,
            memory=self._memory[kind],
            task=data.name or None,
        )
        model_outputs = outputs(self.model, self.rows, setup.inputs(data, kind, name), inference)
        with setup.progress.bar(f"seed {self.seed}, {data.label(kind, name)}", len(examples), "examples") as bar:
            chosen = (pool or setup.train.pool) if data.encoder.has_words else None
            return Evaluation.of(data.task, examples, model_outputs, chosen, bar, keep_logits=keep_logits)

    def _open(self) -> Any:
        setup = self.setup
        if setup.is_plain:
            task = setup.tasks[0].task
            return open_model(setup.checkpoint, task.head, task.head_config(), self.rows, self.seed, task.head_shape())
        heads = {data.name: head_spec(data.task, data.adapter) for data in setup.tasks if data.adapter is not None}
        return open_multitask(setup.checkpoint, heads, self.rows, self.seed)

    def _training_items(self, data: TaskData) -> list[Input]:
        """The training inputs of a task; raises ``InputError`` if there are none."""
        items = data.task.training(data.train, data.encoder, self.seed, self.setup.progress)
        if not items and data.name:
            raise InputError(f"task {data.name} has no examples to train on", "give training files that have some")
        return items

    def _inputs(self, kind: str) -> Iterator[Input]:
        """The inputs of all sets of ``kind`` ``dev`` or ``test``."""
        for data, name in self._sets(kind):
            yield from self.setup.inputs(data, kind, name)

    def _dataset(self, data: TaskData, items: Sequence[Input]) -> TaskDataset | PairedDataset:
        pad, memory, agreement = data.encoder.special.pad, self._memory["train"], self.setup.train.agreement
        dataset = TaskDataset.of(items, self.rows, data.task.head, pad, memory)
        if not self.setup.is_plain:
            dataset = replace(dataset, task=data.name, n_examples=len(data.train))
        return PairedDataset.of(dataset, items, agreement) if agreement else dataset

    def _unlabelled_inputs(self, items: Mapping[str, Sequence[Input]]) -> list[Input]:
        """The unlabelled inputs, only as many as all steps read, since each word in them needs memory.

        ``items`` are the labelled inputs of the only task.
        """
        train, examples = self.setup.train, self.setup.unlabelled
        if not examples:
            return []
        [data] = self.setup.tasks
        labelled = items[data.name]
        steps = train.epochs * -(-2 * len(labelled) // train.batch_size)
        steps = min(steps, train.max_steps or steps)
        return unlabelled_inputs(data, examples, labelled, steps * self.setup.unlabelled_config.unlabelled_batch)

    def _unlabelled(self, inputs: Sequence[Input]) -> UnlabelledDataset | None:
        if not inputs:
            return None
        [data] = self.setup.tasks
        dataset = TaskDataset.of(inputs, self.rows, data.task.head, data.encoder.special.pad)
        return UnlabelledDataset.of(dataset, inputs, self.setup.unlabelled_config.unlabelled_weight)

    def _sets(self, kind: str) -> Iterator[tuple[TaskData, str]]:
        for data in self.setup.tasks:
            for name in getattr(data, kind):
                yield data, name

    def _dev_scores(self) -> SetScores:
        """All scores on the development sets, and the chosen pool with ``--pool best``."""
        tasks: SetScores = {}
        for data, name in self._sets("dev"):
            evaluation = self._evaluate(data, "dev", name)
            chosen = {"pool": evaluation.pool} if self.setup.train.pool == "best" else {}
            tasks.setdefault(data.name, {})[name] = evaluation.scores | chosen
        return tasks

    def _score(self, tasks: SetScores) -> float | None:
        """The score that compares epochs: a plain model's metric, or the average over all sets of all tasks."""
        metrics = {data.name: data.metric for data in self.setup.tasks}
        columns = [metric_of(scores, metrics[task]) for task, sets in tasks.items() for scores in sets.values()]
        return columns[0] if self.setup.is_plain else average(columns)

    def _as_written(self, kind: str, tasks: SetScores) -> Json:
        """The scores of the sets of ``kind`` in the format of the history: for a plain model those of its only set."""
        return tasks[""][kind] if self.setup.is_plain else {"average": self._score(tasks), "tasks": tasks}

    def _numbers(self, tasks: SetScores) -> dict[str, float]:
        """The scores for trackers: for shared tasks the average, and each score as ``<task>_<set>_<score>``."""
        if self.setup.is_plain:
            return _float_scores(tasks[""]["dev"])
        scores_by_name = {
            f"{task}_{name}_{score}": value
            for task, sets in tasks.items()
            for name, scores in sets.items()
            for score, value in _float_scores(scores).items()
        }
        return _float_scores({"average": self._score(tasks)}) | scores_by_name

    def _final_scores(self, dev: Json | None) -> Json:
        """Evaluate on the test sets, write the predictions, and return the scores for ``scores.json``.

        For a plain model these are ``dev``, from the history, and ``test``; for shared tasks both under ``average``
        and, by task, under ``tasks``.
        """
        setup, test = self.setup, SetScores()
        chosen = {"pool": dev["pool"]} if dev and setup.train.pool == "best" else {}
        for data, name in self._sets("test"):
            evaluation = self._evaluate(data, "test", name, chosen.get("pool"), keep_logits=setup.save_logits)
            write_lines(self._predictions(data, name), evaluation.predictions)
            if setup.save_logits:
                write_arrays(self.folder / LOGITS, stacked(evaluation.logits))
            test.setdefault(data.name, {})[name] = evaluation.as_dict() | chosen
        kinds = {"dev": dev} if dev else {}
        kinds |= {"test": self._as_written("test", test)} if test else {}
        if setup.is_plain:
            return kinds
        scored = {
            data.name: {kind: sets["tasks"][data.name] for kind, sets in kinds.items() if data.name in sets["tasks"]}
            for data in setup.tasks
        }
        return {"average": {kind: sets["average"] for kind, sets in kinds.items()}, "tasks": scored}

    def _predictions(self, data: TaskData, name: str) -> Path:
        if self.setup.is_plain:
            return self.folder / PREDICTIONS
        folder = self.folder if self.setup.adds else self.folder / TASKS / data.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"predictions-{name}.jsonl"

    def _write(self, trained: TrainedRows, whole: Path, *, is_whole: bool) -> None:
        """Write the model into ``whole``, or its difference from that model into the seed's folder."""
        setup, folder = self.setup, whole if is_whole else self.folder
        if not setup.adds:
            if is_whole:
                write_model(self.host, trained, setup.checkpoint, whole)
            else:
                write_rows(self.host, trained, setup.checkpoint, Checkpoint.open(whole), folder)
            if setup.general is not None and not setup.general.config.frozen:
                setup.general.copy_tokenizer(folder)
        for data in setup.tasks if not setup.is_plain else ():
            write_part(self.model, data.name, folder if setup.adds else folder / TASKS / data.name)

    def _counts(self) -> Json:
        """The numbers of examples by kind, of training ``inputs``, of ``unlabelled`` inputs and of ``rows``; for shared
        tasks all but the rows by task and set.
        """
        tasks: Json = {
            data.name: {
                "train": len(data.train),
                "inputs": self.n_inputs[data.name],
                "dev": {name: len(examples) for name, examples in data.dev.items()},
                "test": {name: len(examples) for name, examples in data.test.items()},
            }
            for data in self.setup.tasks
        }
        rows = {"rows": self.setup.checkpoint.n_rows, "rows_used": len(self.rows)}
        if not self.setup.is_plain:
            return {"tasks": tasks, **rows}
        counts = tasks[""]
        if self.setup.unlabelled:
            counts["unlabelled"] = self.n_unlabelled
        return {**counts, **{kind: sum(counts[kind].values()) for kind in ("dev", "test")}, **rows}

    def _after_step(self, step: Step, ended: bool) -> None:
        """Record a step, and evaluate at the end of an epoch."""
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
        values = {f"seed_{self.seed}/{name}": value for name, value in numbers.items()}
        self.setup.machine.log(values, self._steps_before + step.number)

    def _end_epoch(self, step: Step) -> None:
        record, train = self.record, self.setup.train
        row: Json = {"seed": self.seed, **record.end_epoch(step)}
        dev = self.setup.machine.first(self._dev_scores)
        if dev:
            row["dev"] = self._as_written("dev", dev)
            score = self._score(dev)
            self._log({f"dev_{name}": value for name, value in self._numbers(dev).items()}, step)
            if score is not None and (record.best is None or score > record.best):
                record.best, record.best_epoch = score, step.epoch
                if train.keep == "best":
                    self._write_best()
            record.stopped = train.patience is not None and step.epoch - record.best_epoch >= train.patience
        record.epochs.append(row)

    def _write_best(self) -> None:
        """Save the weights of the best epoch so far; the state, saved next, has its number."""
        if self.setup.machine.is_first:
            part = self.best.with_name(self.best.name + ".part")
            write_tensors(trained_weights(self.model), part, {"shrink": repr(self.training.shrink)})
            part.replace(self.best)

    def _read_best(self) -> float:
        """Load the best epoch's weights into the model; return the shrinkage at that epoch of rows that it does not
        hold.
        """
        with safe_open(self.best, "pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
            if weights.keys() != trained_weights(self.model).keys():
                raise InputError(f"{self.best} has other weights than the model", f"remove {self.folder} and retry")
            self.model.load_state_dict(weights, strict=False)
            return float(file.metadata()["shrink"])


def _float_scores(scores: Json) -> dict[str, float]:
    """The scores that are floats."""
    return {name: value for name, value in scores.items() if isinstance(value, float)}
