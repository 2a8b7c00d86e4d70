"""Tasks with their examples, read from files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenadapt.architectures.base import Architecture
from greenadapt.checkpoints.layout import set_label
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.entries import read_entries
from greenadapt.progress import Named, Progress
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Encoder, Task, TaskData, make_task
from greenadapt.tasks.metrics import chosen_metric
from greenadapt.tasks.tasks_file import TaskEntry

_MOST_UNLABELLED = 20_000
_SHOWN = 5  # labels in a warning


def read_task_data(
    entry: TaskEntry, checkpoint: Checkpoint, adapter: AdapterConfig | None, progress: Progress
) -> TaskData:
    """The data and settings of a task; without ``adapter`` it is a plain model's only task.

    Raises ``InputError``, with the task's name if it has one, for invalid or empty files, ``UsageError`` for a plain
    model that transformers does not have.
    """
    progress = Named(progress, entry.name) if entry.name else progress
    with _named(entry.name):
        encoder = Encoder.of(checkpoint, entry.config.max_length)
        task = make_task(entry.config)
        if adapter is None:
            _check_head(checkpoint.architecture, task.head)
        parts = {source: task.read(source, progress) for source in dict.fromkeys(entry.train)}
        for source, part in parts.items():
            if adapter is not None and not part:
                raise InputError(f"train: {source} has no examples", "give files with examples")
        if adapter is not None:
            _compare_labels(task, parts, progress)
        train = [example for source in entry.train for example in parts[source]]
        if not train:
            raise InputError("--train has no examples", "give a file with examples")
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
            metric=chosen_metric(entry.metric, task, "tasks file"),
        )


def read_unlabelled(task: Task[Any], source: str, progress: Progress) -> list[Any]:
    """Examples without labels from text, JSON lines or CoNLL columns, as ``predict`` reads them, in random order.

    Of more than 20,000 lines or sentences, so many drawn at random, the same in every run. Raises ``InputError`` if
    there is none.
    """
    drawn: list[tuple[str | Json, str]] = []
    random = np.random.default_rng(0)
    for number, entry in enumerate(read_entries(_Raw(task.name), source, None, progress)):
        if number < _MOST_UNLABELLED:
            drawn.append(entry.example)
        elif (place := int(random.integers(number + 1))) < _MOST_UNLABELLED:  # Vitter's algorithm R
            drawn[place] = entry.example
    if not drawn:
        raise InputError(f"--unlabelled {source} is empty", "give a file with text")
    return [task.example(*drawn[i]) for i in random.permutation(len(drawn)).tolist()]


@dataclass(frozen=True)
class _Raw:
    """A reader of entries as they are: only those that are drawn become examples."""

    name: str

    def example(self, record: str | Json, where: str) -> tuple[str | Json, str]:
        return record, where


def described(one: TaskData) -> Json:
    """The content of ``task.json`` for a task with an adapter."""
    assert one.adapter is not None
    own = {"adapter": one.adapter.settings(), "metric": one.metric, "max_length": one.encoder.max_length}
    return {**one.task.settings(), **own}


def _compare_labels(task: Task[Any], parts: Mapping[str, list[Any]], progress: Progress) -> None:
    """Warn if a label is only in some of the training files: it may be a different spelling."""
    found = {source: task.labels_in(part) for source, part in parts.items()}
    for source, labels in found.items():
        lacks = sorted(set().union(*found.values()) - labels)
        if lacks:
            shown = ", ".join(lacks[:_SHOWN]) + (" …" if len(lacks) > _SHOWN else "")
            progress.warn(f"training files differ in their labels: {source} lacks {shown}")


def _sets(task: Task[Any], kind: str, entry: TaskEntry, progress: Progress) -> dict[str, list[Any]]:
    sets = {name: task.read(source, progress) for name, source in getattr(entry, kind).items()}
    for name, examples in sets.items():
        if not examples:
            label = set_label(kind, name) if entry.name else f"--{kind}"
            raise InputError(f"{label} has no examples", "give a file with examples")
    return sets


def _check_head(architecture: Architecture, head: str) -> None:
    """Raise ``UsageError`` for a plain model that transformers does not have."""
    if head not in architecture.heads:
        raise UsageError(
            f"transformers has no model for {head} of type {architecture.model_type}",
            "use a model of another type, or --tasks, whose heads are greenadapt's own",
        )


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"task {name}: {error.message}" if name else error.message, error.hint) from None
