"""Folders of fine-tuned models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.arrays import ArrayFile
from greenadapt.checkpoint import Checkpoint
from greenadapt.errors import InputError, UsageError
from greenadapt.json_files import described_in
from greenadapt.model import PretrainedModel, find_model, require_whole
from greenadapt.store import MANIFEST, Json, read_manifest
from greenadapt.tasks import Task
from greenadapt.tasks.registry import load_task
from greenadapt.tasks.squad import QuestionTask
from greenadapt.training.layout import MULTITASK_FILE, TASK_FILE, WEIGHTS_FILE
from greenadapt.training.multitask_folder import is_multitask, read_task, task_names, weight_folders
from greenadapt.training.seed_folders import read_described, weights_of_seed


@dataclass(frozen=True)
class TaskFolder:
    """A task's model on disk: what its task is, and where the weights of the wanted seed lie."""

    folder: Path
    weights: Path
    """Of several tasks on one encoder: that one's."""
    settings: Json
    task: Task[Any]
    name: str | None = None
    """Which of several tasks it is."""
    seed: int | None = None
    """``None`` is the first one."""

    @classmethod
    def open(cls, model: str, seed: int | None = None, task: str | None = None) -> "TaskFolder":
        """Look at everything but the numbers in a folder that ``finetune`` wrote, or ``expand`` from one.

        A folder of several tasks needs the name of one as ``task``. Raises ``MissingError`` or ``InputError`` where it
        is no such folder, ``UsageError`` for a name where it has one task, and for none where it has several.
        """
        folder = find_model(model).folder
        if (folder / MANIFEST).is_file():
            read_manifest(folder)  # refuses another format version
        opened = cls.without_model(folder, seed, task)
        require_whole(folder, seed)
        Checkpoint.open(folder)  # refuses what is broken before anything heavy is loaded
        own = [opened.weights] if opened.name is None else weight_folders(folder, [opened.name], seed).parts.values()
        for file in (part / WEIGHTS_FILE for part in own):
            if file.is_file():
                ArrayFile(file)
        return opened

    @classmethod
    def without_model(cls, folder: Path, seed: int | None = None, task: str | None = None) -> "TaskFolder":
        """The same for a folder of which only what describes the model need be left."""
        if is_multitask(folder):
            return cls._one_of_several(folder, seed, task)
        if task is not None:
            raise UsageError(f"--task {task}, but {folder} has one task", "leave out --task")
        settings = read_described(folder / TASK_FILE)
        with described_in(folder / TASK_FILE, "train the model again"):
            described = load_task(settings)
        return cls(folder, weights_of_seed(folder, seed), settings, described, None, seed)

    @classmethod
    def _one_of_several(cls, folder: Path, seed: int | None, name: str | None) -> "TaskFolder":
        names = task_names(folder)
        if name is None and len(names) != 1:
            raise UsageError(
                f"{folder} has {len(names)} tasks on one encoder ({', '.join(names) or 'none'})", "name one with --task"
            )
        name = names[0] if name is None else name
        described = read_task(folder, name)
        settings = {**read_described(folder / MULTITASK_FILE), **described.settings}
        return cls(folder, weight_folders(folder, [name], seed).encoder, settings, described.task, name, seed)

    @classmethod
    def open_questions(cls, found: PretrainedModel, seed: int | None = None, task: str | None = None) -> "TaskFolder":
        """The same for a model that answers questions, which may also come from elsewhere, without ``task.json``.

        Raises ``InputError`` for a model of another task, ``UsageError`` for a seed of one from elsewhere.
        """
        if not (found.folder / TASK_FILE).is_file() and not is_multitask(found.folder):
            for option, value in (("--seed", seed), ("--task", task)):
                if value is not None:
                    raise UsageError(
                        f"{option} {value}, but finetune did not write {found.source}", f"leave out {option}"
                    )
            Checkpoint.open(found.folder)
            return cls(found.folder, found.folder, {}, QuestionTask())
        opened = cls.open(str(found.folder), seed, task)
        if not isinstance(opened.task, QuestionTask):
            raise InputError(
                f"{found.source} is for {opened.task.name}, not for question answering",
                "give a model that finetune --task qa wrote",
            )
        return opened
