"""What a folder with several tasks on one encoder says of them, and where the weights of each seed lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.adapter_config import AdapterConfig
from greenadapt.errors import MissingError, UsageError
from greenadapt.json_files import described_in
from greenadapt.store import Json
from greenadapt.tasks import Task
from greenadapt.tasks.registry import load_task
from greenadapt.tasks.task_names import TASK_NAME
from greenadapt.training.layout import MULTITASK_FILE, TASK_FILE, TASKS
from greenadapt.training.seed_folders import read_described, weights_of_seed


@dataclass(frozen=True)
class DescribedTask:
    """What ``task.json`` of one of several tasks says."""

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


def is_multitask(folder: Path) -> bool:
    """Whether a model's folder has several tasks on one encoder, or is made to."""
    return (folder / MULTITASK_FILE).is_file()


def require_multitask(folder: Path) -> None:
    """Raise ``UsageError`` where a folder has no tasks on one encoder."""
    if not is_multitask(folder):
        raise UsageError(f"{folder} has no tasks that share an encoder", "give the folder that finetune --tasks wrote")


def task_names(folder: Path) -> tuple[str, ...]:
    """The tasks that a folder has, in the order of the training and then those that were added, by name.

    A name that says something else than a folder in ``tasks/`` is none, whatever ``multitask.json`` says.
    """
    there = folder / TASKS
    found = [path.name for path in sorted(there.iterdir()) if _is_task(path)] if there.is_dir() else []
    settings = read_described(folder / MULTITASK_FILE)
    with described_in(folder / MULTITASK_FILE, "train the model again"):
        trained = settings["tasks"]
    order = [name for name in trained if isinstance(name, str)] if isinstance(trained, list) else []
    return tuple(sorted(found, key=lambda name: order.index(name) if name in order else len(order)))


def require_tasks(folder: Path, names: Sequence[str]) -> None:
    """Raise ``MissingError`` that lists the tasks of ``folder`` where it lacks one of ``names``."""
    there = task_names(folder)
    for name in names:
        if name not in there:
            raise MissingError(f"{folder} has no task {name!r}", f"it has {', '.join(there) or 'none'}")


def read_task(folder: Path, name: str) -> DescribedTask:
    """The task ``name`` of ``folder``.

    Raises ``MissingError`` that lists those there are for another one, ``InputError`` where its file is broken.
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


def _is_task(path: Path) -> bool:
    return bool(TASK_NAME.fullmatch(path.name)) and not path.is_symlink() and (path / TASK_FILE).is_file()
