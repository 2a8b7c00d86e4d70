"""Which class does which task."""

from importlib import import_module
from typing import Any, get_args

from greenadapt.config import TaskConfig, TaskName
from greenadapt.errors import InputError
from greenadapt.tasks import Json, Task

_CLASSES: dict[str, tuple[str, str]] = {
    "ner": ("ner", "NerTask"),
    "classification": ("classification", "ClassificationTask"),
    "qa": ("squad", "QuestionTask"),
}


def make_task(config: TaskConfig) -> Task[Any]:
    """The task that ``config`` describes, without labels: ``fit`` gives it those of the training examples."""
    task: Task[Any] = _class(config.task).of(config)
    return task


def load_task(settings: Json) -> Task[Any]:
    """The task whose ``settings()`` are given; raises ``InputError`` where they name none."""
    name = str(settings.get("task"))
    if name not in _CLASSES:
        raise InputError(f"{name} is no task", f"known are {', '.join(get_args(TaskName))}")
    task: Task[Any] = _class(name).of_settings(settings)
    return task


def _class(name: str) -> Any:
    module, title = _CLASSES[name]
    return getattr(import_module(f"greenadapt.tasks.{module}"), title)
