"""Predictions of fine-tuned models for input of any size, streamed in order."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from typing import Any

from greenadapt.config import EnsembleRule
from greenadapt.corpus.opening import STDIN, require_source
from greenadapt.errors import InputError, UsageError, require_torch
from greenadapt.inference.ensemble import check_alike, combined_units
from greenadapt.inference.entries import Entry, EntryFormat, in_blocks, read_entries, read_glue_entries
from greenadapt.inference.opened_models import OpenedModel, ReadingOptions, one_process
from greenadapt.models.memory.choice import check_memories
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Progress
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task
from greenadapt.tasks.qa.questions import Question

PredictBlock = Callable[[Sequence[Any]], Iterator[Json]]
"""Results for the examples of a block."""


@dataclass(frozen=True)
class PredictRequest:
    """What to predict, and by which models."""

    models: tuple[str, ...]
    """Task folders; several are an ensemble."""
    source: str = STDIN
    """See ``read_entries``, also for ``format``."""
    format: EntryFormat | None = None
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    ensemble: EnsembleRule | None = None
    """What is averaged of several models; ``None`` is ``logits``."""
    tasks: tuple[str, ...] = ()
    """The tasks to predict, by name, of a model of several; none for the only task of a model."""
    glue: bool = False
    """Whether ``source`` is a test table as GLUE publishes it, whatever ``format`` is."""

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("no model", "give the folder that finetune wrote with --model")
        if self.ensemble is not None and len(self.models) == 1:
            raise UsageError(
                f"--ensemble {self.ensemble} needs several models, there is one", "give each with a --model of its own"
            )
        if not all(self.tasks):
            raise UsageError("--task has an empty name", "give names with commas between them, such as --task a,b")
        for name, n in Counter(self.tasks).items():
            if n > 1:
                raise UsageError(f"--task has {name} {n} times", "give each task once")
        if len(self.models) > 1 and len(self.tasks) > 1:
            raise UsageError(
                f"{len(self.models)} models and {len(self.tasks)} tasks: several models answer together for one task",
                "give one --model, or one --task",
            )
        if self.glue and len(self.tasks) > 1:
            raise UsageError(f"--glue writes one task's file, --task has {len(self.tasks)}", "name one task")
        if self.glue and self.format is not None:
            raise UsageError(f"--glue reads a table, --format is {self.format}", "leave out --glue or --format")


@dataclass(frozen=True)
class Prediction:
    """The models' prediction for one entry of the input.

    Of one task ``result`` is what its ``decode`` gives. Of several it has that of each by its name in ``tasks``, and
    the entry's ``example`` is one of each task, by name.
    """

    entry: Entry
    result: Json

    def as_dict(self) -> Json:
        """``line`` and ``id``, if known, and the result."""
        known = {"line": self.entry.line, "id": self.entry.id}
        return {
            **{name: value for name, value in known.items() if value is not None},
            **_without_id(self.result),
        }


def _without_id(result: Json) -> Json:
    """A task's result without the id, which a row has once."""
    return {name: value for name, value in result.items() if name != "id"}


class _OneTask:
    """Models of one task, whose outputs are averaged."""

    def __init__(self, request: PredictRequest) -> None:
        name = request.tasks[0] if request.tasks else None
        self._request = request
        self.folders = [TaskFolder.open(model, request.reading.seed, name) for model in request.models]
        check_alike(self.folders)
        self._task = self.folders[0].task
        self.tasks: dict[str, Task[Any]] = {name or "": self._task}
        self.cut = [Counter[str]() for _ in self.folders]

    def entries(self, source: str, kind: EntryFormat | None, progress: Progress) -> Iterator[Entry]:
        """See ``read_entries``."""
        return read_entries(self._task, source, kind, progress)

    def open(self) -> PredictBlock:
        rule = self._request.ensemble or "logits"
        members = [OpenedModel.open(folder, self._request.reading) for folder in self.folders]

        def predict(examples: Sequence[Any]) -> Iterator[Json]:
            for each in zip(*map(OpenedModel.logits, members, repeat(examples), self.cut), strict=True):
                example = each[0][0]
                yield self._task.decode(example, combined_units([one for _, one in each], rule, self._task.head))

        return predict


class _SeveralTasks:
    """Several tasks of one model, which read the same entries."""

    def __init__(self, request: PredictRequest) -> None:
        [model], seed = request.models, request.reading.seed
        self._request = request
        self._named = {name: TaskFolder.open(model, seed, name) for name in request.tasks}
        self.folders = [*self._named.values()]
        self.tasks: dict[str, Task[Any]] = {name: folder.task for name, folder in self._named.items()}
        self._counts = {name: Counter[str]() for name in self._named}
        self.cut = [*self._counts.values()]

    @property
    def name(self) -> str:
        """The kinds of the tasks, of which an input has to suit all."""
        return " and ".join(dict.fromkeys(task.name for task in self.tasks.values()))

    def example(self, record: str | Json, where: str) -> dict[str, Any]:
        made = {}
        for name, task in self.tasks.items():
            try:
                made[name] = task.example(record, where)
            except InputError as error:
                raise InputError(f"task {name}: {error.message}", error.hint) from None
        return made

    def entries(self, source: str, kind: EntryFormat | None, progress: Progress) -> Iterator[Entry]:
        """See ``read_entries``; every example is one of each task, by name."""
        for entry in read_entries(self, source, kind, progress):
            is_shared = isinstance(entry.example, Question)  # of SQuAD's JSON, which ``example`` does not make
            yield replace(entry, example=dict.fromkeys(self.tasks, entry.example)) if is_shared else entry

    def open(self) -> PredictBlock:
        model = OpenedModel.open_all(self.folders, self._request.reading)

        def predict(examples: Sequence[Any]) -> Iterator[Json]:
            for read in model.logits_of_all(examples, self._counts):
                made = {name: task.decode(*read[name]) for name, task in self.tasks.items()}
                yield {"tasks": {name: _without_id(each) for name, each in made.items()}}

        return predict


class Predictor:
    """Fine-tuned models of one task, or several tasks of one model, opened for prediction.

    Raises ``MissingError`` or ``InputError`` if ``finetune`` did not write a folder, if it has no such task, or if two
    differ in their labels.
    """

    def __init__(self, request: PredictRequest) -> None:
        require_torch("predicting")
        one_process("predict")
        if request.source != STDIN:
            require_source(request.source)
        self._request = request
        self._asked = _SeveralTasks(request) if len(request.tasks) > 1 else _OneTask(request)
        check_memories(self._asked.folders, request.reading.memory)

    @property
    def tasks(self) -> dict[str, Task[Any]]:
        """The tasks by name; the only one of a model has an empty name."""
        return self._asked.tasks

    def predict(self, progress: Progress) -> Iterator[list[Prediction]]:
        """The predictions in the order of the input, a block at a time, so that memory does not grow with the input.

        Raises ``InputError`` if the input is broken, once the predictions for all before it are out. Warns of examples
        that were cut.
        """
        entries = self._entries(progress)
        if self._request.source != STDIN:  # a missing file is reported before the models are loaded
            entries = chain(list(islice(entries, 1)), entries)
        predict = self._asked.open()
        with progress.bar("predict", None, "examples") as bar:
            for block in in_blocks(entries):
                yield list(map(Prediction, block, predict([entry.example for entry in block])))
                bar.advance(len(block))
        if n_cut := max(counts["cut"] for counts in self._asked.cut):
            progress.warn(f"{n_cut:,} of the examples are longer than the model reads at once, and were cut")

    def _entries(self, progress: Progress) -> Iterator[Entry]:
        source = self._request.source
        if self._request.glue:
            [task] = self.tasks.values()
            return read_glue_entries(task, source, progress)
        return self._asked.entries(source, self._request.format, progress)


def predict(request: PredictRequest, progress: Progress) -> Iterator[Prediction]:
    """The models' prediction for each entry of the input, in order; see ``Predictor``."""
    for block in Predictor(request).predict(progress):
        yield from block
