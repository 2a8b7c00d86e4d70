"""The examples of many tasks, read from their files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from greenadapt.checkpoint import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError
from greenadapt.features import Encoder
from greenadapt.progress import Named, Progress
from greenadapt.tasks import Task
from greenadapt.tasks.registry import make_task
from greenadapt.tasks.task_metrics import chosen_metric
from greenadapt.tasks.tasks_file import TaskEntry

if TYPE_CHECKING:
    from greenadapt.training.multitask_run import TaskData


def read_task_data(entry: TaskEntry, checkpoint: Checkpoint, adapter: AdapterConfig, progress: Progress) -> "TaskData":
    """Everything that one task is trained and measured on.

    Raises ``InputError`` that names the task for files that are broken or empty.
    """
    from greenadapt.training.multitask_run import TaskData

    progress = Named(progress, entry.name)
    with _named(entry.name):
        task = make_task(entry.config)
        train = [example for source in entry.train for example in task.read(source, progress)]
        if not train:
            raise InputError("train has no examples", "give a file that has some")
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


def _sets(task: Task[Any], kind: str, sources: Mapping[str, str], progress: Progress) -> dict[str, list[Any]]:
    sets = {name: task.read(source, progress) for name, source in sources.items()}
    for name, examples in sets.items():
        if not examples:
            what = kind if name == kind else f"{kind} {name}"
            raise InputError(f"{what} has no examples", "give a file that has some")
    return sets


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"task {name}: {error.message}", error.hint) from None
