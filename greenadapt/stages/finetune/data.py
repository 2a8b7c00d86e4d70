"""The data of a fine-tuning: the labelled examples of each task, and sentences without labels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from greenadapt.checkpoints.layout import set_name
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.entries import read_entries
from greenadapt.inference.search.paragraphs import sentence_gaps
from greenadapt.progress import PrefixedProgress, Progress
from greenadapt.store.files import Json
from greenadapt.tasks.base import Encoder, Task, TaskData, make_task
from greenadapt.tasks.metrics import choose_metric
from greenadapt.tasks.tasks_file import TaskEntry

_UNLABELLED_PER_LABELLED, _MOST_UNLABELLED = 40, 20_000
_FEWEST_WORDS, _MOST_WORDS = 5, 60
"""Words of a sentence without labels."""


def read_task_data(
    entry: TaskEntry, checkpoint: Checkpoint, adapter: AdapterConfig | None, progress: Progress
) -> TaskData:
    """The data and settings of a task; without ``adapter`` it is the only task of a plain model.

    Raises ``InputError``, with the task's name if it has one, for invalid or empty files, ``UsageError`` if
    transformers has no such plain model.
    """
    progress = PrefixedProgress(progress, entry.name) if entry.name else progress
    with _name_task(entry.name):
        encoder = Encoder.of(checkpoint, entry.config.max_length)
        task = make_task(entry.config)
        if adapter is None and task.head not in checkpoint.architecture.heads:
            raise UsageError(
                f"transformers has no model for {task.head} of type {checkpoint.architecture.model_type}",
                "use a model of another type, or --tasks, whose heads are greenadapt's own",
            )
        train = [example for source in entry.train for example in task.read(source, progress)]
        if not train:
            option = "" if entry.name else "--train "
            raise InputError(f"{option}{', '.join(entry.train)} has no examples", "give a file with examples")
        task = task.fit(train, progress)
        if entry.fold is not None:
            train, _ = entry.fold.split(train)
        return TaskData(
            name=entry.name,
            task=task,
            encoder=encoder,
            train=train,
            dev=_sets(task, "dev", entry, progress),
            test=_sets(task, "test", entry, progress),
            adapter=adapter,
            metric=choose_metric(entry.metric, task, "tasks file"),
        )


def read_unlabelled(data: TaskData, source: str, progress: Progress) -> list[Any]:
    """Sentences of 5 to 60 words from text, JSON lines or CoNLL columns, as ``predict`` reads them, in random order.

    Text is cut into sentences. A random sample of 40 for each training example, the same in every run. Raises
    ``InputError`` if there is none.
    """
    n = min(_UNLABELLED_PER_LABELLED * len(data.train), _MOST_UNLABELLED)
    sample: list[tuple[str | Json, str]] = []
    random = np.random.default_rng(0)
    for number, entry in enumerate(
        read_entries(_Raw(data.task.name, data.task.settings().get("columns", ())), source, None, progress)
    ):
        if number < n:
            sample.append(entry.example)
        elif (row := int(random.integers(number + 1))) < n:  # Vitter's algorithm R
            sample[row] = entry.example
    sentences: list[Any] = []
    for i in random.permutation(len(sample)).tolist():
        record, where = sample[i]
        examples = (data.task.example(sentence, where) for sentence in _sentences(record))
        sentences += [example for example in examples if _FEWEST_WORDS <= len(example.words) <= _MOST_WORDS]
        if len(sentences) >= n:
            break
    if not sentences:
        raise InputError(
            f"--unlabelled {source} has no sentence of {_FEWEST_WORDS} to {_MOST_WORDS} words", "give a file with text"
        )
    return sentences[:n]


def _sentences(record: str | Json) -> list[str | Json]:
    """The sentences of a text; tokens are left as they are."""
    text = record if isinstance(record, str) else record.get("text")
    if not isinstance(text, str) or "tokens" in record:
        return [record]
    gaps = [(0, 0), *sentence_gaps(text, 0, len(text)), (len(text), len(text))]
    return [text[begin:end] for (_, begin), (end, _) in pairwise(gaps)]


@dataclass(frozen=True)
class _Raw:
    """A reader of raw entries: only those in the sample become examples."""

    name: str
    columns: Sequence[str]

    def example(self, record: str | Json, where: str) -> tuple[str | Json, str]:
        return record, where


def _sets(task: Task[Any], kind: str, entry: TaskEntry, progress: Progress) -> dict[str, list[Any]]:
    sets = {name: task.read(source, progress) for name, source in getattr(entry, kind).items()}
    for name, examples in sets.items():
        if not examples:
            label = set_name(kind, kind, name) if entry.name else f"--{kind} {getattr(entry, kind)[name]}"
            raise InputError(f"{label} has no examples", "give a file with examples")
    return sets


@contextmanager
def _name_task(name: str) -> Iterator[None]:
    """Put the task's name before errors in its files."""
    try:
        yield
    except InputError as error:
        raise InputError(f"task {name}: {error.message}" if name else error.message, error.hint) from None
