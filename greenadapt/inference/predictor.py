"""Predictions of fine-tuned models for input of any size, streamed in order."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, count, islice, repeat
from operator import add
from typing import Any

from greenadapt.cluster import ClusterPool
from greenadapt.config import EnsembleRule, ReadingOptions, TableFormat
from greenadapt.corpus.opening import STDIN, is_read_once, require_source
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.entries import Entry, EntryFormat, Reader, group_entries, read_entries
from greenadapt.inference.models import OpenedModel, check_alike, check_reading, ensemble_logits, require_one_process
from greenadapt.models.memory.choice import check_memories
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Progress
from greenadapt.store.files import Json
from greenadapt.tasks.base import Item, Task
from greenadapt.workers import prefetch, yield_ready

_MOST_READY = 1024
"""Predictions that wait until they are written, at most."""


@dataclass(frozen=True)
class PredictionRequest:
    """The models, the input and the options of a prediction."""

    models: tuple[str, ...]
    """Task folders; several are an ensemble."""
    source: str = STDIN
    """See ``read_entries``, also for ``format``."""
    format: EntryFormat | None = None
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    ensemble: EnsembleRule | None = None
    """The average of several models; ``None`` is ``logits``."""
    tasks: tuple[str, ...] = ()
    """Names of tasks of a multitask model; empty for the only task of a model."""
    columns: tuple[str, ...] = ()
    """See ``read_entries``."""

    def __post_init__(self) -> None:
        if self.ensemble is not None and len(self.models) == 1:
            raise UsageError(
                f"--ensemble {self.ensemble} needs several models, there is one", "give each with a --model of its own"
            )
        if len(self.models) > 1 and len(self.tasks) > 1:
            raise UsageError(
                f"{len(self.models)} models and {len(self.tasks)} tasks: several models answer together for one task",
                "give one --model, or one --task",
            )


@dataclass(frozen=True)
class EntryPrediction:
    """The models' prediction for one entry of the input.

    For one task ``result`` is the output of its ``decode``. For several, ``result["tasks"]`` and the entry's
    ``example`` have a result and an example of each task, by name.
    """

    entry: Entry
    result: Json

    def row(self, *, tags: bool = False, text: bool = True) -> Json:
        """``line`` and ``id``, if known, and the result, see ``strip_result``."""
        entry, example = {"line": self.entry.line, "id": self.entry.id}, self.entry.example
        row = {name: value for name, value in entry.items() if value is not None}
        if "tasks" not in self.result:
            return row | strip_result(self.result, example, tags=tags, text=text)
        tasks = self.result["tasks"].items()
        shown = {name: strip_result(result, example[name], tags=tags, text=text) for name, result in tasks}
        return row | {"tasks": shown}


def strip_result(result: Json, example: Any, *, tags: bool = False, text: bool = True) -> Json:
    """A task's result without its id, which a row has once; of NER with ``tags`` also ``tags`` and ``words``.

    With ``text`` the example's text comes with it, so that it can be corrected, and learnt from.
    """
    if text and getattr(example, "text", None) is not None:
        result = {"text": example.text, **result}
    if "tags" in result and tags:
        return {**result, "words": example.words}
    return {name: value for name, value in result.items() if name not in ("id", "tags")}


@dataclass(frozen=True)
class _SharedReader:
    """Reads an entry as an example of each of several tasks, by name."""

    tasks: dict[str, Task[Any]]

    @property
    def name(self) -> str:
        """The kinds of the tasks; an input has to suit all of them."""
        return " and ".join(dict.fromkeys(task.name for task in self.tasks.values()))

    @property
    def table(self) -> TableFormat | None:
        """The format of tables that all tasks have; raises ``UsageError`` if they differ."""
        tables = dict.fromkeys(getattr(task, "table", None) for task in self.tasks.values())
        if len(tables) > 1:
            raise UsageError(
                "the tasks were trained on tables of different formats", "name one task, or give JSON lines"
            )
        return next(iter(tables))

    def example(self, record: str | Json, where: str) -> dict[str, Any]:
        examples = {}
        for name, task in self.tasks.items():
            try:
                examples[name] = task.example(record, where)
            except InputError as error:
                raise InputError(f"task {name}: {error.message}", error.hint) from None
        return examples


class Predictor:
    """Fine-tuned models of one task, or several tasks of one model, opened for prediction.

    Raises ``MissingError`` or ``InputError`` if ``finetune`` did not write a folder, if it has no such task, or if two
    differ in their labels.
    """

    def __init__(self, request: PredictionRequest) -> None:
        require_one_process("predict")
        if request.source != STDIN:
            require_source(request.source)
        self._request = request
        names = request.tasks or (None,)
        self._folders = [
            TaskFolder.open(model, request.reading.seed, name) for name in names for model in request.models
        ]
        check_reading(self._folders, request.reading)
        if len(names) == 1:
            check_alike(self._folders)
        self._cut = [Counter[str]() for _ in self._folders]
        self.tasks: dict[str, Task[Any]] = {
            name or "": folder.task for name, folder in zip(names, self._folders, strict=False)
        }
        """By name; the only one of a model has an empty name."""
        self._reader: Reader = _SharedReader(self.tasks) if len(self.tasks) > 1 else next(iter(self.tasks.values()))
        check_memories(self._folders, request.reading.memory)

    def predict(self, progress: Progress, cluster: ClusterPool | None = None) -> Iterator[list[EntryPrediction]]:
        """The predictions in the order of the input, as they come, so that memory does not grow with the input.

        With ``cluster`` the nodes of a cluster make them. Raises ``InputError`` if the input is broken, after the
        predictions for all before it. Warns of examples that were cut.
        """
        entries = self._entries(progress)
        if self._request.source != STDIN:  # a missing file is reported before the models are loaded
            entries = chain(list(islice(entries, 1)), entries)
        return self._predict(entries, progress) if cluster is None else self._predict_on(cluster, entries, progress)

    def predict_records(self, records: Iterable[str | Json], progress: Progress) -> Iterator[list[EntryPrediction]]:
        """Predictions for texts and records of a program instead of the request's source."""
        return self._predict(map(self._entry, count(), records), progress)

    def _entry(self, number: int, record: str | Json) -> Entry:
        where = f"item {number}"
        example = self._reader.example(record, where)
        if isinstance(record, str):
            return Entry(None, None, example, len(record), where)
        return Entry(None, record.get("id"), example, sum(map(len, map(str, record.values()))), where)

    def _predict(self, entries: Iterator[Entry], progress: Progress) -> Iterator[list[EntryPrediction]]:
        self.members  # noqa: B018  (opens the models)
        # A pipe or a terminal is read only when an entry is needed, so that Ctrl-C ends the command at once.
        is_piped = is_read_once(self._request.source)
        staged = ((block, self._read([entry.example for entry in block])) for block in group_entries(entries))
        blocks = staged if is_piped else prefetch(staged)
        with progress.bar("predict", None, "examples") as bar, closing(blocks):
            predicted = chain.from_iterable(map(EntryPrediction, block, predict()) for block, predict in blocks)
            batches = ([prediction] for prediction in predicted) if is_piped else yield_ready(predicted, _MOST_READY)
            with closing(batches):
                for batch in batches:
                    yield batch
                    bar.advance(len(batch))
        _warn_cut((counts.pop("cut", 0) for counts in self._cut), progress)

    def _predict_on(
        self, cluster: ClusterPool, entries: Iterator[Entry], progress: Progress
    ) -> Iterator[list[EntryPrediction]]:
        """Predictions on the nodes of a cluster."""
        sent = deque[list[Entry]]()

        def examples() -> Iterator[list[Any]]:
            for block in group_entries(entries):
                sent.append(block)
                yield [entry.example for entry in block]

        cut = [0] * len(self._folders)
        answers = cluster.map(_open_predictor, examples(), replace(self._request, source=STDIN))
        with progress.bar("predict", None, "examples") as bar:
            for results, cut_in_block in answers:
                block = sent.popleft()
                yield list(map(EntryPrediction, block, results))
                bar.advance(len(block))
                cut = list(map(add, cut, cut_in_block))
        _warn_cut(cut, progress)

    def predict_block(self, examples: Sequence[Any]) -> tuple[list[Json], list[int]]:
        """The results for examples that are predicted together, and how many of them each model cut."""
        return list(self._read(examples)()), [counts.pop("cut", 0) for counts in self._cut]

    @cached_property
    def members(self) -> list[OpenedModel]:
        """The models of one task, or a model for each of several tasks."""
        reading = self._request.reading
        if len(self.tasks) > 1:
            return OpenedModel.open_tasks(self._folders, reading)
        return [OpenedModel.open_to_predict(folder, reading) for folder in self._folders]

    def _entries(self, progress: Progress) -> Iterator[Entry]:
        request = self._request
        return read_entries(self._reader, request.source, request.format, progress, request.columns)

    def _read(self, examples: Sequence[Any]) -> Callable[[], Iterator[Json]]:
        """Tokenize the examples of a block, and return a function that predicts for them."""
        is_shared = len(self.tasks) > 1
        by_member = [[example[name] for example in examples] for name in self.tasks] if is_shared else repeat(examples)
        inputs = [*map(list, map(OpenedModel.inputs, self.members, by_member, self._cut))]
        return partial(self._decode_shared if is_shared else self._decode, inputs)

    def _decode(self, inputs: Sequence[Sequence[Item]]) -> Iterator[Json]:
        """The result of a task for each example, from its inputs for each model."""
        [task] = self.tasks.values()
        rule = self._request.ensemble or "logits"
        for pairs in zip(*map(OpenedModel.logits, self.members, inputs), strict=True):
            yield task.decode(pairs[0][0], ensemble_logits([logits for _, logits in pairs], rule, task.head))

    def _decode_shared(self, inputs: Sequence[Sequence[Item]]) -> Iterator[Json]:
        """The results of all tasks for each example, from its inputs for each task; one task after the other reads a
        block, since they share a model.
        """
        logits = [list(model.logits(items)) for model, items in zip(self.members, inputs, strict=True)]
        for pairs in zip(*logits, strict=True):
            tasks = zip(self.tasks.items(), pairs, strict=True)
            yield {"tasks": {name: task.decode(*pair) for (name, task), pair in tasks}}


def _open_predictor(request: PredictionRequest) -> Callable[[Sequence[Any]], tuple[list[Json], list[int]]]:
    """``predict_block`` of a predictor whose models are open."""
    predictor = Predictor(request)
    predictor.members  # noqa: B018  (opens the models)
    return predictor.predict_block


def _warn_cut(cut: Iterable[int], progress: Progress) -> None:
    if n_cut := max(cut):
        progress.warn(f"{n_cut:,} of the examples are longer than the model reads at once, and were cut")
