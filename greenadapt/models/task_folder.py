"""The task in a model's folder, and where the weights of a seed lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.checkpoints.layout import (
    MULTITASK_FILE,
    TASK_FILE,
    TASKS,
    WEIGHTS_FILE,
    is_multitask,
    read_described,
    require_tasks,
    task_names,
    weights_of_seed,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel, find_model, require_whole
from greenadapt.config import AdapterConfig, Pool, TrainConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.storage.arrays import ArrayFile
from greenadapt.storage.files import Json, described_in
from greenadapt.storage.results import MANIFEST, read_manifest
from greenadapt.tasks.base import Task, load_task
from greenadapt.tasks.qa import QuestionTask


@dataclass(frozen=True)
class DescribedTask:
    """The content of ``task.json`` for one of several tasks."""

    task: Task[Any]
    adapter: AdapterConfig
    settings: Json
    """All of it."""

    @property
    def is_added(self) -> bool:
        """Whether it was added to a folder that was trained before, on the encoder as that was."""
        return bool(self.settings.get("added"))


@dataclass(frozen=True)
class WeightFolders:
    """Where the weights of one seed lie."""

    encoder: Path
    parts: dict[str, Path]
    """Of each task its folder with ``weights.safetensors``."""


def read_task(folder: Path, name: str) -> DescribedTask:
    """The task ``name`` of ``folder``.

    Raises ``MissingError`` that lists the tasks if there is no such one, ``InputError`` if its file is broken.
    """
    require_tasks(folder, [name])
    file = folder / TASKS / name / TASK_FILE
    settings = read_described(file)
    with described_in(file, "train the model again"):
        return DescribedTask(load_task(settings), AdapterConfig.of_settings(settings["adapter"]), settings)


def weight_folders(folder: Path, names: Sequence[str], seed: int | None) -> WeightFolders:
    """Where the weights of ``names`` under ``seed`` lie; ``None`` is the first one.

    The encoder of a task that was added is that of the folder's first seed, whatever the seed of its own weights.
    Raises ``MissingError`` for a task or a seed that is not there, ``UsageError`` for tasks of several encoders.
    """
    encoders: dict[Path, str] = {}
    parts: dict[str, Path] = {}
    for name in names:
        own = folder / TASKS / name
        if read_task(folder, name).is_added:
            encoder, parts[name] = folder, weights_of_seed(own, seed)
        else:
            encoder = weights_of_seed(folder, seed)
            parts[name] = encoder / TASKS / name
        encoders.setdefault(encoder, name)
    if len(encoders) > 1:
        one, other = encoders.values()
        raise UsageError(
            f"the tasks {one} and {other} of {folder} have different encoders under seed {seed}: one of them was added",
            "ask for one of them at a time, or leave out --seed",
        )
    return WeightFolders(next(iter(encoders)), parts)


def pool_of_seed(settings: Json, seed: int | None) -> Pool:
    """Whose logits decide under a seed, the first one for ``None``, by the ``settings`` of a task.

    ``pools`` has that of each seed where the development set chose them.
    """
    pool: Pool = settings.get("pools", {}).get(str(seed)) or settings.get("pool", TrainConfig.pool)
    return pool


def answers_from_elsewhere(folder: Path) -> bool:
    """Whether it is a question answering model that ``finetune`` did not write."""
    if (folder / TASK_FILE).is_file() or is_multitask(folder):
        return False
    architectures = Checkpoint.open(folder).config.get("architectures") or [""]
    return str(architectures[0]).endswith("ForQuestionAnswering")


@dataclass(frozen=True)
class TaskFolder:
    """A task's model on disk: the task, and where the weights of the wanted seed lie."""

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

        A folder of several tasks needs the name of one as ``task``. Raises ``MissingError`` or ``InputError`` for
        any other folder, ``UsageError`` for a name if it has one task, and for no name if it has several.
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
    def find(cls, model: str, seed: int | None = None, task: str | None = None) -> "TaskFolder":
        """``open``, or ``open_questions`` for a question answering model from elsewhere."""
        found = find_model(model)
        if answers_from_elsewhere(found.folder):
            return cls.open_questions(found, seed, task)
        return cls.open(model, seed, task)

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
        weights = weights_of_seed(folder, seed)
        return cls(folder, weights, {**settings, "pool": pool_of_seed(settings, seed)}, described, None, seed)

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
