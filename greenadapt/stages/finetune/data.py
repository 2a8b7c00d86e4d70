"""The data of a fine-tuning: the labelled examples of each task."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from greenadapt.checkpoints.layout import set_name
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.progress import PrefixedProgress, Progress
from greenadapt.tasks.base import Encoder, Task, TaskData, make_task
from greenadapt.tasks.metrics import choose_metric
from greenadapt.tasks.tasks_file import TaskEntry


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
