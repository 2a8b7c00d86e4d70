"""One seed of a fine-tuning run on several tasks, which share one encoder (arXiv 1902.02671)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from greenadapt.checkpoints.layout import TASKS, set_label
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig, SamplingConfig
from greenadapt.errors import InputError
from greenadapt.models.adapters.multitask_weights import (
    head_spec,
    open_multitask,
    write_multitask,
    write_multitask_rows,
    write_part,
)
from greenadapt.models.embedding_rows import Rows
from greenadapt.models.weights import TrainedRows
from greenadapt.progress import Progress
from greenadapt.storage.files import Json, write_lines
from greenadapt.tasks.base import Task
from greenadapt.tasks.features import Encoder, Input
from greenadapt.tasks.metrics import average, metric_of
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Feed
from greenadapt.training.finetune.run import Measured, RunSetup, SeedRun, float_scores

Sets = dict[str, dict[str, Json]]
"""Task → name of a set → all of its scores."""


@dataclass(frozen=True, eq=False)
class TaskData:
    """One of several tasks, with its labelled examples."""

    name: str
    task: Task[Any]
    encoder: Encoder
    """How the model reads them."""
    train: Sequence[Any]
    dev: Mapping[str, Sequence[Any]]
    """Name of each development set → its examples."""
    test: Mapping[str, Sequence[Any]]
    """The same of test sets."""
    adapter: AdapterConfig
    metric: str
    """Path of the score that counts, see ``metric_of``."""

    def sets(self, kind: str) -> Mapping[str, Sequence[Any]]:
        """``dev`` or ``test``."""
        return self.dev if kind == "dev" else self.test


@dataclass(frozen=True, kw_only=True)
class MultitaskSetup(RunSetup):
    """What all seeds of a run on several tasks share."""

    tasks: tuple[TaskData, ...]
    sampling: SamplingConfig
    adds: bool = False
    """Whether only the tasks' own weights are written, for one that is added to a folder with its encoder."""

    @property
    def first_encoder(self) -> Encoder:
        """The first task's; those of the others differ in how much they read at once."""
        return self.tasks[0].encoder


class MultitaskRun(SeedRun[MultitaskSetup]):
    """Trains ``setup`` under one seed in ``folder``, where a killed run has left its state.

    Where a task's adapter says that the encoder is frozen, all of it is, its memory too. Epochs are compared by the
    average over the development sets of all tasks (arXiv 1902.02671, table 3).
    """

    def __init__(self, setup: MultitaskSetup, seed: int, folder: Path, steps_before: int = 0) -> None:
        super().__init__(setup, seed, folder, steps_before)
        items = {one.name: _training(one, seed, setup.progress) for one in setup.tasks}
        self.rows = Rows.seen(chain(*items.values(), self._seen()), setup.first_encoder.special)
        heads = {one.name: head_spec(one.task, one.adapter) for one in setup.tasks}
        self.model = open_multitask(setup.checkpoint, heads, self.rows, seed)
        self._memory = self.attach(self.model.encoder, [*chain(*items.values())], self._read_again())
        self.model.freeze()
        datasets = [self._dataset(one, items[one.name]) for one in setup.tasks]
        self.n_inputs = {one.task: one.n_items for one in datasets}
        self.training = self.begin(Feed(datasets, self.plan, setup.sampling))

    def dev_scores(self) -> Json | None:
        """``average``, and under ``tasks`` the scores of every set; ``None`` where no task has a development set."""
        tasks: Sets = {}
        for one, name, examples in self._sets("dev"):
            evaluation = self.evaluate(self._measured(one, "dev", name, examples))
            tasks.setdefault(one.name, {})[name] = evaluation.scores
        return {"average": self._average(tasks), "tasks": tasks} if tasks else None

    def score_of(self, dev: Json) -> float | None:
        """The average over all sets of all tasks."""
        score: float | None = dev["average"]
        return score

    def numbers_of(self, dev: Json) -> dict[str, float]:
        """The average and, as ``<task>_<set>_<score>``, all scores that are numbers."""
        named = {
            f"{task}_{name}_{score}": value
            for task, sets in dev["tasks"].items()
            for name, scores in sets.items()
            for score, value in float_scores(scores).items()
        }
        return float_scores({"average": dev["average"]}) | named

    def final_scores(self, dev: Json | None) -> Json:
        """``average`` by ``dev`` and ``test``, where there are such sets, and under ``tasks`` each task's sets of both.

        The predictions on test sets go into each task's own folder.
        """
        test: Sets = {}
        for one, name, examples in self._sets("test"):
            evaluation = self.evaluate(self._measured(one, "test", name, examples))
            folder = self._place(one.name)
            folder.mkdir(parents=True, exist_ok=True)
            write_lines(folder / f"predictions-{name}.jsonl", evaluation.predictions)
            test.setdefault(one.name, {})[name] = evaluation.as_dict()
        kinds: dict[str, Sets] = {"dev": dev["tasks"]} if dev else {}
        kinds |= {"test": test} if test else {}
        averages = {kind: self._average(sets) for kind, sets in kinds.items()}
        names = [one.name for one in self.setup.tasks]
        scored = {name: {kind: sets[name] for kind, sets in kinds.items() if name in sets} for name in names}
        return {"average": averages, "tasks": scored}

    def write(self, trained: TrainedRows, whole: Path, *, is_whole: bool) -> None:
        """See ``write_multitask`` and ``write_multitask_rows``, and ``write_part`` where tasks are added."""
        source, folder = self.setup.checkpoint, whole if is_whole else self.folder
        if self.setup.adds:
            for one in self.setup.tasks:
                write_part(self.model, one.name, folder)
            return
        if is_whole:
            write_multitask(self.model, trained, source, whole)
        else:
            write_multitask_rows(self.model, trained, source, Checkpoint.open(whole), self.folder)
        self.copy_general_tokenizer(folder)

    def counts(self) -> Json:
        """Of each task under ``tasks`` ``train`` examples, ``inputs`` that training has of them, and those of every set
        of ``dev`` and ``test``; ``rows``, ``rows_used``.
        """
        tasks = {
            one.name: {
                "train": len(one.train),
                "inputs": self.n_inputs[one.name],
                "dev": {name: len(examples) for name, examples in one.dev.items()},
                "test": {name: len(examples) for name, examples in one.test.items()},
            }
            for one in self.setup.tasks
        }
        return {"tasks": tasks, "rows": self.setup.checkpoint.n_rows, "rows_used": len(self.rows)}

    def _sets(self, kind: str) -> Iterator[tuple[TaskData, str, Sequence[Any]]]:
        for one in self.setup.tasks:
            for name, examples in one.sets(kind).items():
                yield one, name, examples

    def _seen(self) -> Iterator[Input]:
        """What is read but not trained on."""
        for kind in ("dev", "test"):
            yield from self._inputs(kind)

    def _read_again(self) -> Iterator[Input]:
        """What is measured on after every epoch."""
        return self._inputs("dev")

    def _inputs(self, kind: str) -> Iterator[Input]:
        for one, name, examples in self._sets(kind):
            label = f"{one.name}, {set_label(kind, name)}"
            yield from self.setup.inputs(one.task, one.encoder, examples, label)

    def _dataset(self, one: TaskData, items: Sequence[Input]) -> TaskDataset:
        pad, memory = one.encoder.special.pad, self._memory["train"]
        dataset = TaskDataset.of(items, self.rows, one.task.head, pad, memory)
        return replace(dataset, task=one.name, n_examples=len(one.train))

    def _measured(self, one: TaskData, kind: str, name: str, examples: Sequence[Any]) -> Measured:
        label = f"{one.name}, {set_label(kind, name)}"
        inputs = self.setup.inputs(one.task, one.encoder, examples, label)
        return Measured(one.task, one.encoder, examples, inputs, label, self._memory[kind], one.name)

    def _average(self, tasks: Sets) -> float | None:
        metrics = {one.name: one.metric for one in self.setup.tasks}
        return average(metric_of(scores, metrics[task]) for task, sets in tasks.items() for scores in sets.values())

    def _place(self, name: str) -> Path:
        """Where a task's predictions go."""
        return self.folder if self.setup.adds else self.folder / TASKS / name


def _training(one: TaskData, seed: int, progress: Progress) -> list[Input]:
    """What a task trains on; raises ``InputError`` where that is nothing."""
    items = one.task.training(one.train, one.encoder, seed, progress)
    if not items:
        raise InputError(f"task {one.name} has no examples to train on", "give training files that have some")
    return items
