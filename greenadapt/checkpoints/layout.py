"""The files in a fine-tuned or compiled model's folder, read without torch."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

from greenadapt.config import Backend, Length, Pool, Quantize
from greenadapt.errors import MissingError, UsageError
from greenadapt.storage.arrays import ArrayFile
from greenadapt.storage.files import Json, write_json
from greenadapt.storage.own_json import read_own, read_own_object
from greenadapt.storage.results import ModelName

FACTS_FILE = "greenadapt.json"
"""How the model was adapted, if at all."""


TASK_FILE = "task.json"
"""The task's settings, and how to use its model."""


MULTITASK_FILE = "multitask.json"
"""How to use a model of several tasks, and which tasks it has."""


TASKS = "tasks"
"""One folder per task, in a model of several."""


WEIGHTS_FILE = "weights.safetensors"
"""Weights of a further seed beside those of the first one, and of one of several tasks beside the encoder's."""


SCORES = "scores.json"
"""Of all seeds, and of each in its own folder."""


SEEDS = "seeds"
"""One folder per seed."""


PREDICTIONS = "predictions.jsonl"
"""Of one seed on the test set, in its order."""


HISTORY = "history.jsonl"
"""One line per epoch."""


LOGITS = "logits.safetensors"
"""Of one seed on the test set, both views, if kept."""


MEMORY_FILE = "memory.safetensors"
"""The trained weights that connect a model to its general model's states."""


MEMORY_FOLDER = "memory"
"""The general model itself, if it was trained too."""


_AGAIN = "train the model again"


def weights_of_seed(folder: Path, seed: int | None) -> Path:
    """The folder of the weights of ``seed``, of the first one ``folder`` itself; raises ``MissingError`` for others."""
    if seed is None:
        return folder
    if not (folder / SCORES).is_file():
        raise MissingError(f"{folder} has one model and no seed {seed}", "leave out --seed")
    seeds = read_seeds(folder)
    if seed not in seeds:
        raise MissingError(f"{folder} has no seed {seed}", f"it has {', '.join(map(str, seeds))}")
    return folder if seed == seeds[0] else folder / SEEDS / str(seed)


def read_seeds(folder: Path) -> tuple[int, ...]:
    """The seeds that a model was fine-tuned with, in order.

    Raises ``MissingError`` or ``InputError`` if the folder does not say so.
    """
    scores = read_own(folder / SCORES, _SeedScores, *_WHAT)
    return tuple(entry.seed for entry in scores.seeds)


def n_weights(folder: Path) -> int:
    """The number of parameters in ``folder``'s ``weights.safetensors``, from the header alone.

    Raises ``MissingError`` if the folder has no such file.
    """
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise MissingError(f"{folder} has no {WEIGHTS_FILE}", _AGAIN)
    weights = ArrayFile(file)
    return sum(prod(weights.shape(name)) for name in weights.names)


@dataclass(frozen=True)
class _Used:
    """How a fine-tuned model is used, of one task or of several."""

    pool: Pool = "mean"
    pools: dict[str, Pool] = field(default_factory=dict)
    added_words: int = 0
    memory: dict[str, Any] | None = None
    max_length: Length | None = None


@dataclass(frozen=True)
class _Task(_Used):
    task: str = ""
    labels: list[str] | None = None
    adapter: dict[str, Any] | None = None
    metric: str | None = None
    added: bool = False
    has_null: bool = False


@dataclass(frozen=True)
class _Multitask(_Used):
    tasks: list[str] | None = None


@dataclass(frozen=True)
class _Facts:
    corpus: str
    model: ModelName
    title: str = ""
    licence: str = ""
    rows: int = 0
    pretrained: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class _Scores:
    seeds: list[dict[str, Any]] = field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    dev: dict[str, Any] | None = None
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _SeedOfScores:
    seed: int


@dataclass(frozen=True)
class _SeedScores:
    seeds: tuple[_SeedOfScores, ...]


_KINDS: dict[str, Any] = {FACTS_FILE: _Facts, TASK_FILE: _Task, MULTITASK_FILE: _Multitask, SCORES: _Scores}
"""File → what is to be in it, of what is read by name."""
_WHAT = "fine-tuned model", "give the folder that finetune wrote, or train it again"


def read_described(path: Path) -> Json:
    """The JSON object in a fine-tuned or adapted model's file.

    Raises ``MissingError`` or ``InputError`` if it holds none, or a value of another type.
    """
    return read_own_object(path, _KINDS[path.name], *_WHAT)


TASK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Of a task, whose name is that of a folder, and of a set of examples."""


TASK_NAME_RULE = "use letters, digits and _, and - and . but for the first character, 100 at most"


def set_label(kind: str, name: str) -> str:
    """The label of the set ``name`` of ``kind`` (``dev`` or ``test``); the only one of its kind has the kind's name."""
    return kind if kind == name else f"{kind} {name}"


def is_multitask(folder: Path) -> bool:
    """Whether a model's folder is for several tasks on one encoder."""
    return (folder / MULTITASK_FILE).is_file()


def require_multitask(folder: Path) -> None:
    """Raise ``MissingError`` if a folder does not exist, ``UsageError`` if it has no tasks on one encoder."""
    if not folder.exists():
        raise MissingError(f"{folder} does not exist", "check the path")
    if not is_multitask(folder):
        raise UsageError(f"{folder} has no tasks that share an encoder", "give the folder that finetune --tasks wrote")


def task_names(folder: Path) -> tuple[str, ...]:
    """The tasks of a folder, in the order of training, then those that were added, by name.

    Names in ``multitask.json`` that are not those of a folder in ``tasks/`` are ignored.
    """
    there = folder / TASKS
    found = [path.name for path in sorted(there.iterdir()) if _is_task(path)] if there.is_dir() else []
    order: list[str] = read_described(folder / MULTITASK_FILE)["tasks"] or []
    return tuple(sorted(found, key=lambda name: order.index(name) if name in order else len(order)))


def require_tasks(folder: Path, names: Sequence[str]) -> None:
    """Raise ``MissingError`` listing the tasks of ``folder`` if it lacks one of ``names``."""
    there = task_names(folder)
    for name in names:
        if name not in there:
            raise MissingError(f"{folder} has no task {name!r}", f"it has {', '.join(there) or 'none'}")


def _is_task(path: Path) -> bool:
    return bool(TASK_NAME.fullmatch(path.name)) and not path.is_symlink() and (path / TASK_FILE).is_file()


CompiledBackend = Literal["onnx", "openvino"]
"""What runs a graph."""
GraphInput = Literal["attention_mask", "token_type_ids", "position_ids"]
"""What a graph may read beside ``inputs_embeds``."""
COMPILED_FILE = "compiled.json"
"""How a compiled model is run."""
EMBEDDING_FILE = "embedding.safetensors"
"""The whole embedding of a compiled model, which its graph does not hold."""
GRAPHS: dict[Backend, str] = {"onnx": "model.onnx", "openvino": "model.xml"}
"""Backend → the graph's file; that of OpenVINO has its weights beside it, in ``model.bin``."""


@dataclass(frozen=True)
class Compiled:
    """How a compiled model is run."""

    backend: CompiledBackend
    quantize: Quantize
    head: str | None
    """As in ``checkpoints``' architectures, such as ``TokenClassification``; ``None`` for sentence vectors."""
    inputs: tuple[GraphInput, ...]
    """Names of the graph's inputs beside ``inputs_embeds``, in order; its only output is ``logits``."""

    @classmethod
    def read(cls, folder: Path) -> "Compiled | None":
        """That of a folder, ``None`` if the model is not compiled; raises ``InputError`` if the file is broken."""
        file = folder / COMPILED_FILE
        if not file.is_file():
            return None
        return read_own(file, cls, "compiled model", "compile the model again")

    def write(self, folder: Path) -> None:
        """Write ``compiled.json``."""
        write_json(folder / COMPILED_FILE, self.as_json())

    def as_json(self) -> Json:
        """Its content."""
        return asdict(self)
