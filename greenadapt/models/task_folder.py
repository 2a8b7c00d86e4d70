"""The task in the folder of a fine-tuned model, and the folders of the weights of a seed."""

import json
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
    task_names,
    weights_of_seed,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model, require_whole
from greenadapt.config import AdapterConfig, Pool, TrainConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.store.arrays import ArrayFile
from greenadapt.store.files import Json, parse_own
from greenadapt.store.results import MANIFEST, read_manifest
from greenadapt.tasks.base import Task, load_task, n_outputs
from greenadapt.tasks.qa import QuestionTask


def answers_from_elsewhere(folder: Path) -> bool:
    """Whether ``folder`` is a question answering model that ``finetune`` did not write."""
    if (folder / TASK_FILE).is_file() or is_multitask(folder):
        return False
    architectures = Checkpoint(folder).config.get("architectures") or [""]
    return str(architectures[0]).endswith("ForQuestionAnswering")


def _require_labels(checkpoint: Checkpoint, task: Task[Any]) -> None:
    """Raise ``InputError`` if the labels of a model's head are not those of its ``task``."""
    config = task.head_config()
    labels = {str(number): label for number, label in config.get("id2label", {}).items()}
    n_labels = n_outputs(task)
    of_head = checkpoint.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}  # as transformers
    has_names = of_head != {str(i): f"LABEL_{i}" for i in range(len(of_head))}
    if len(of_head) != n_labels or (has_names and labels and of_head != labels):
        raise InputError(
            f"{checkpoint.folder / TASK_FILE} has {n_labels} labels ({', '.join(labels.values()) or 'numbers'}), the "
            f"head in config.json has {len(of_head)} ({', '.join(map(str, of_head.values()))})",
            "copy both of the same model",
        )


@dataclass(frozen=True)
class TaskFolder:
    """A fine-tuned model on disk: its task, and the folder of the weights of a seed."""

    folder: Path
    weights: Path
    """The folder of the encoder's weights in a multitask model."""
    settings: Json
    task: Task[Any]
    name: str | None = None
    """The name of the task in a multitask model."""
    seed: int | None = None
    """``None``: the first seed."""
    adapter: AdapterConfig | None = None
    """The task's adapter in a multitask model."""

    @property
    def part(self) -> Path | None:
        """The folder of the weights of the task's own part of a multitask model."""
        return None if self.name is None else self.weights / TASKS / self.name

    @classmethod
    def open(cls, model: str, seed: int | None = None, task: str | None = None) -> "TaskFolder":
        """Check everything but the weights in a folder that ``finetune`` wrote, or ``expand`` from one, or in that of
        a question answering model of another program.

        A multitask model needs the name of a ``task``. Raises ``MissingError`` or ``InputError`` for any other folder,
        ``UsageError`` for a name or a seed that the model does not have, and without a name if it has several tasks.
        """
        folder = find_model(model).folder
        if answers_from_elsewhere(folder):
            for option, value in (("--seed", seed), ("--task", task)):
                if value is not None:
                    raise UsageError(f"{option} {value}, but finetune did not write {model}", f"leave out {option}")
            return cls(folder, folder, {}, QuestionTask())
        if (folder / MANIFEST).is_file():
            read_manifest(folder)  # refuses another format version
        opened = cls.open_without_weights(folder, seed, task)
        require_whole(folder, seed)
        checkpoint = Checkpoint(folder)  # refuses what is broken before anything heavy is loaded
        if opened.part is None:
            _require_labels(checkpoint, opened.task)
        Checkpoint(opened.weights)
        if opened.part is not None and (opened.part / WEIGHTS_FILE).is_file():
            ArrayFile(opened.part / WEIGHTS_FILE)
        return opened

    @classmethod
    def open_without_weights(cls, folder: Path, seed: int | None = None, task: str | None = None) -> "TaskFolder":
        """The same for a folder that need not have weights."""
        if is_multitask(folder):
            return cls._of_multitask(folder, seed, task)
        if task is not None:
            raise UsageError(f"--task {task}, but {folder} has one task", "leave out --task")
        settings = read_described(folder / TASK_FILE)
        described = load_task(settings, folder / TASK_FILE)
        pool: Pool = settings.get("pool", TrainConfig.pool)
        return cls(folder, weights_of_seed(folder, seed), {**settings, "pool": pool}, described, None, seed)

    @classmethod
    def _of_multitask(cls, folder: Path, seed: int | None, name: str | None) -> "TaskFolder":
        names = task_names(folder)
        if name is None and len(names) != 1:
            raise UsageError(
                f"{folder} has {len(names)} tasks on one encoder ({', '.join(names) or 'none'})", "name one with --task"
            )
        name = names[0] if name is None else name
        if name not in names:
            raise MissingError(f"{folder} has no task {name!r}", f"it has {', '.join(names) or 'none'}")
        file = folder / TASKS / name / TASK_FILE
        settings = read_described(file)
        task = load_task(settings, file)
        if settings.get("adapter") is None:
            raise InputError(f"{file} has no adapter", "train the model again")
        adapter = parse_own(json.dumps(settings["adapter"]), AdapterConfig, file, "train the model again")
        settings = {**read_described(folder / MULTITASK_FILE), **settings}
        return cls(folder, weights_of_seed(folder, seed), settings, task, name, seed, adapter)
