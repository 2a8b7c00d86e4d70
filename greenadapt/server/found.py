"""Models that are to be served: looked at, not yet opened."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenadapt.checkpoints.layout import TASK_FILE, is_multitask, task_names
from greenadapt.checkpoints.source import find_model
from greenadapt.config import ReadingOptions
from greenadapt.errors import InputError, UsageError
from greenadapt.models.task_folder import TaskFolder, answers_from_elsewhere
from greenadapt.storage.files import expanded
from greenadapt.tokenization.added_words import WORDS_FILE

WORDS = "words"
"""The kind of a model that has added words and no task."""


@dataclass(frozen=True)
class FoundModel:
    """A model with a task, with added words, or with both."""

    name: str
    """What requests call it."""
    folder: Path
    task: TaskFolder | None

    @property
    def kind(self) -> str:
        """``ner``, ``classification``, ``qa`` or ``words``."""
        return WORDS if self.task is None else self.task.task.name

    @property
    def has_words(self) -> bool:
        """Whether it has neighbours of words, and two tokenizations."""
        return (self.folder / WORDS_FILE).is_file()


def find_models(models: Sequence[str], reading: ReadingOptions, task: str | None) -> tuple[FoundModel, ...]:
    """What to serve of folders and hub ids: each model, or of several tasks on one encoder each, or only ``task``.

    The name is the last part of the path, or all of it where several would have the same; a task of several is
    ``model:task``. Raises ``UsageError`` if a model is given twice, or a ``task`` and no model of several,
    ``MissingError`` or ``InputError`` for what is no model, or has neither task nor words.
    """
    folders = [find_model(model).folder for model in models]
    for folder, n in Counter(folder.resolve() for folder in folders).items():
        if n > 1:
            raise UsageError(f"{folder} is given {n} times", "give each --model once")
    if task is not None and not any(map(is_multitask, folders)):
        raise UsageError(f"--task {task}, but no --model has several tasks", "leave out --task")
    last = [expanded(model).resolve().name for model in models]
    names = [name if last.count(name) == 1 else model for name, model in zip(last, models, strict=True)]
    return tuple(
        each for folder, name in zip(folders, names, strict=True) for each in _found(folder, name, reading.seed, task)
    )


def _found(folder: Path, name: str, seed: int | None, task: str | None) -> Iterator[FoundModel]:
    if is_multitask(folder):
        for one in task_names(folder) if task is None else (task,):
            yield FoundModel(f"{name}:{one}", folder, TaskFolder.find(str(folder), seed, one))
    elif (folder / TASK_FILE).is_file() or answers_from_elsewhere(folder):
        yield FoundModel(name, folder, TaskFolder.find(str(folder), seed))
    elif (folder / WORDS_FILE).is_file():
        yield FoundModel(name, folder, None)
    else:
        raise InputError(f"{folder} has neither a task nor added words", "give what finetune or adapt wrote")
