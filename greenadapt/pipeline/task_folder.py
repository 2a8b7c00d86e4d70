"""Folders of fine-tuned models."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.model import PretrainedModel, find_model
from greenadapt.store import MANIFEST, Json, read_manifest
from greenadapt.tasks import Task
from greenadapt.tasks.registry import load_task
from greenadapt.tasks.squad import QuestionTask
from greenadapt.training.layout import SCORES, SEEDS, TASK_FILE


@dataclass(frozen=True)
class TaskFolder:
    """A task's model on disk: what its task is, and where the weights of the wanted seed lie."""

    folder: Path
    weights: Path
    settings: Json
    task: Task[Any]

    @classmethod
    def open(cls, model: str, seed: int | None = None) -> "TaskFolder":
        """Look at everything but the weights of a folder that ``finetune`` wrote, or ``expand`` from one.

        Raises ``MissingError`` or ``InputError`` where it is none.
        """
        folder = find_model(model).folder
        if (folder / MANIFEST).is_file():
            read_manifest(folder)  # refuses another format version
        return cls.without_model(folder, seed)

    @classmethod
    def without_model(cls, folder: Path, seed: int | None = None) -> "TaskFolder":
        """The same for a folder of which only what describes the model need be left."""
        settings = _read_object(folder / TASK_FILE)
        try:
            task = load_task(settings)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{folder / TASK_FILE} is broken ({error!r})", "train the model again") from None
        return cls(folder, _weights(folder, seed), settings, task)

    @classmethod
    def open_questions(cls, found: PretrainedModel, seed: int | None = None) -> "TaskFolder":
        """The same for a model that answers questions, which may also come from elsewhere, without ``task.json``.

        Raises ``InputError`` for a model of another task, ``UsageError`` for a seed of one from elsewhere.
        """
        if not (found.folder / TASK_FILE).is_file():
            if seed is not None:
                raise UsageError(f"--seed {seed}, but finetune did not write {found.source}", "leave out --seed")
            return cls(found.folder, found.folder, {}, QuestionTask())
        opened = cls.open(str(found.folder), seed)
        if not isinstance(opened.task, QuestionTask):
            raise InputError(
                f"{found.source} is for {opened.task.name}, not for question answering",
                "give a model that finetune --task qa wrote",
            )
        return opened


def _weights(folder: Path, seed: int | None) -> Path:
    """Where the weights of ``seed`` lie: the first one's in the folder itself."""
    if seed is None:
        return folder
    if not (folder / SCORES).is_file():
        raise MissingError(f"{folder} has one model, no seed {seed}", "leave out --seed")
    seeds = read_seeds(folder)
    if seed not in seeds:
        raise MissingError(f"{folder} has no seed {seed}", f"it has {', '.join(map(str, seeds))}")
    return folder if seed == seeds[0] else folder / SEEDS / str(seed)


def read_seeds(folder: Path) -> tuple[int, ...]:
    """The seeds under which a model was fine-tuned, in that order.

    Raises ``MissingError`` or ``InputError`` where the folder does not say so.
    """
    try:
        return tuple(int(entry["seed"]) for entry in _read_object(folder / SCORES)["seeds"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / SCORES} is broken ({error!r})", "train the model again") from None


def _read_object(path: Path) -> Json:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise MissingError(
            f"{path.parent} is no fine-tuned model: it has no {path.name}", "give the folder that finetune wrote"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})", "train the model again") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object", "train the model again")
    return content
