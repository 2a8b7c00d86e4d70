"""Each of many tasks with its examples, read from their files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from greenadapt.checkpoints.layout import set_label
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError
from greenadapt.progress import Named, Progress
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task, make_task
from greenadapt.tasks.features import Encoder
from greenadapt.tasks.metrics import chosen_metric
from greenadapt.tasks.tasks_file import TaskEntry

if TYPE_CHECKING:
    from greenadapt.training.finetune.many_tasks import TaskData

_SHOWN = 5  # labels in a warning


def read_task_data(entry: TaskEntry, checkpoint: Checkpoint, adapter: AdapterConfig, progress: Progress) -> "TaskData":
    """Everything that one task is trained and measured on.

    Raises ``InputError`` that names the task for files that are broken or empty.
    """
    from greenadapt.training.finetune.many_tasks import TaskData

    progress = Named(progress, entry.name)
    with _named(entry.name):
        task = make_task(entry.config)
        parts = {source: task.read(source, progress) for source in dict.fromkeys(entry.train)}
        for source, part in parts.items():
            if not part:
                raise InputError(f"train: {source} has no examples", "give files that have some")
        _compare_labels(task, parts, progress)
        train = [example for source in entry.train for example in parts[source]]
        task = task.fit(train, progress)
        return TaskData(
            name=entry.name,
            task=task,
            encoder=Encoder.of(checkpoint, entry.config.max_length),
            train=train,
            dev=_sets(task, "dev", entry.dev, progress),
            test=_sets(task, "test", entry.test, progress),
            adapter=adapter,
            metric=chosen_metric(entry.metric, task, "tasks file"),
        )


def described(one: "TaskData") -> Json:
    """What ``task.json`` says of a task."""
    own = {"adapter": one.adapter.settings(), "metric": one.metric, "max_length": one.encoder.max_length}
    return {**one.task.settings(), **own}


def _compare_labels(task: Task[Any], parts: Mapping[str, list[Any]], progress: Progress) -> None:
    """Warn where a label is in some of the training files alone: another spelling would be another label."""
    found = {source: task.labels_in(part) for source, part in parts.items()}
    for source, labels in found.items():
        lacks = sorted(set().union(*found.values()) - labels)
        if lacks:
            shown = ", ".join(lacks[:_SHOWN]) + (" …" if len(lacks) > _SHOWN else "")
            progress.warn(f"training files differ in their labels: {source} lacks {shown}")


def _sets(task: Task[Any], kind: str, sources: Mapping[str, str], progress: Progress) -> dict[str, list[Any]]:
    sets = {name: task.read(source, progress) for name, source in sources.items()}
    for name, examples in sets.items():
        if not examples:
            raise InputError(f"{set_label(kind, name)} has no examples", "give a file that has some")
    return sets


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"task {name}: {error.message}", error.hint) from None
