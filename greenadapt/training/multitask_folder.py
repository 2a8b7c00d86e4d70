"""What a folder with several tasks on one encoder says of them, and where the weights of each seed lie."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from greenadapt.arrays import ArrayFile
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.store import Json
from greenadapt.tasks import Task
from greenadapt.tasks.registry import load_task
from greenadapt.training.layout import MULTITASK_FILE, SCORES, SEEDS, TASK_FILE, TASKS, WEIGHTS_FILE

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")  # of a task: it becomes a folder's
_AGAIN = "train the model again"


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
class Places:
    """Where the weights of one seed lie."""

    encoder: Path
    parts: dict[str, Path]
    """Of each task its folder with ``weights.safetensors``."""


def is_multitask(folder: Path) -> bool:
    """Whether a model's folder has several tasks on one encoder, or is made to."""
    return (folder / MULTITASK_FILE).is_file()


def task_names(folder: Path) -> tuple[str, ...]:
    """The tasks that a folder has, in the order of the training and then those that were added, by name.

    A name that says something else than a folder in ``tasks/`` is none, whatever ``multitask.json`` says.
    """
    there = folder / TASKS
    found = [path.name for path in sorted(there.iterdir()) if _is_task(path)] if there.is_dir() else []
    trained = read_object(folder / MULTITASK_FILE).get("tasks")
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
    settings = read_object(file)
    try:
        return DescribedTask(load_task(settings), AdapterConfig(**settings["adapter"]), settings)
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise InputError(f"{file} is broken ({error!r})", _AGAIN) from None


def n_weights(folder: Path) -> int:
    """How many numbers the ``weights.safetensors`` in ``folder`` has; reads none of them."""
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise MissingError(f"{folder} has no {WEIGHTS_FILE}", _AGAIN)
    weights = ArrayFile(file)
    return sum(prod(weights.shape(name)) for name in weights.names)


def places(folder: Path, names: Sequence[str], seed: int | None) -> Places:
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
    return Places(next(iter(encoders)), parts)


def weights_of_seed(folder: Path, seed: int | None) -> Path:
    """Where the weights of ``seed`` lie: the first one's in the folder itself; raises ``MissingError`` for another."""
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
        return tuple(int(entry["seed"]) for entry in read_object(folder / SCORES)["seeds"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder / SCORES} is broken ({error!r})", _AGAIN) from None


def read_object(path: Path) -> Json:
    """The JSON object in a fine-tuned model's file; raises ``MissingError`` or ``InputError`` where it holds none."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise MissingError(
            f"{path.parent} is no fine-tuned model: it has no {path.name}", "give the folder that finetune wrote"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})", _AGAIN) from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object", _AGAIN)
    return content


def _is_task(path: Path) -> bool:
    return bool(_NAME.fullmatch(path.name)) and not path.is_symlink() and (path / TASK_FILE).is_file()
