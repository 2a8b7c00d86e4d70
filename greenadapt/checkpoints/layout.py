"""Files in the folder of a fine-tuned or compiled model, read without torch."""

import re
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

from greenadapt.config import Length, Pool, Quantize
from greenadapt.errors import MissingError
from greenadapt.store.arrays import ArrayFile
from greenadapt.store.files import Json, read_own, read_own_object, write_json
from greenadapt.store.results import ModelName

FACTS_FILE = "greenadapt.json"
"""How an adapted model was created."""
TASK_FILE = "task.json"
"""Settings of the task and of its model."""
MULTITASK_FILE = "multitask.json"
"""Settings and tasks of a multitask model."""
TASKS = "tasks"
"""Folder of a multitask model with one folder per task."""
WEIGHTS_FILE = "weights.safetensors"
"""Weights of a task in addition to the shared encoder."""
SCORES = "scores.json"
"""Scores of all seeds, and in a seed's folder of that seed."""
SEEDS = "seeds"
"""Folder with one folder per seed."""
PREDICTIONS = "predictions.jsonl"
"""Predictions of a seed on the test set, in its order."""
HISTORY = "history.jsonl"
"""One line per epoch."""
LOGITS = "logits.safetensors"
"""Logits of a seed on the test set, both views; optional."""
STATE, HEAD_STATE = ".state.safetensors", ".head.safetensors"
"""States of a training, and of that of a new head before it, which only an unfinished run has."""
MEMORY_FILE = "memory.safetensors"
"""The trained weights that connect a model to its general model's states."""
MEMORY_FOLDER = "memory"
"""Folder of the general model, if it was trained too."""
WORD_VECTORS_FILE = "word_vectors.safetensors"
"""The word vectors of the text that a model was adapted to, which ``finetune --word-vectors`` reads."""
_AGAIN = "train the model again"


def weights_of_seed(folder: Path, seed: int | None) -> Path:
    """The folder of the weights of ``seed``, ``folder`` itself for the first; ``MissingError`` for an unknown seed."""
    if seed is None:
        return folder
    if not (folder / SCORES).is_file():
        raise MissingError(f"{folder} has one model and no seed {seed}", "leave out --seed")
    seeds = read_seeds(folder)
    if seed not in seeds:
        raise MissingError(f"{folder} has no seed {seed}", f"it has {', '.join(map(str, seeds))}")
    return folder if seed == seeds[0] else folder / SEEDS / str(seed)


def read_seeds(folder: Path) -> tuple[int, ...]:
    """The seeds of a fine-tuned model, in order.

    Raises ``MissingError`` or ``InputError`` if the folder has no valid scores.
    """
    return tuple(entry["seed"] for entry in read_described(folder / SCORES).get("seeds", ()))


def n_weights(folder: Path) -> int:
    """Number of parameters in ``weights.safetensors``, from the header.

    Raises ``MissingError`` if the folder has no such file.
    """
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise MissingError(f"{folder} has no {WEIGHTS_FILE}", _AGAIN)
    weights = ArrayFile(file)
    return sum(prod(weights.shape(name)) for name in weights.names)


@dataclass(frozen=True)
class _Used:
    """Settings that fine-tuned models of one task and of several tasks share."""

    pool: Pool = "mean"
    added_words: int = 0
    memory: dict[str, Any] | None = None
    max_length: Length | None = None


@dataclass(frozen=True)
class _Task(_Used):
    task: str = ""
    labels: list[str] | None = None
    adapter: dict[str, Any] | None = None
    metric: str | None = None
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
class _Seed:
    seed: int


@dataclass(frozen=True)
class _Scores:
    seeds: list[_Seed] = field(default_factory=list)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    dev: dict[str, Any] | None = None
    counts: dict[str, Any] = field(default_factory=dict)


_KINDS: dict[str, Any] = {FACTS_FILE: _Facts, TASK_FILE: _Task, MULTITASK_FILE: _Multitask, SCORES: _Scores}
"""File → the fields that are read."""
_WHAT = "fine-tuned model", "give the folder that finetune wrote, or train it again"


def read_described(path: Path) -> Json:
    """Read a JSON file of a fine-tuned or adapted model.

    Raises ``MissingError`` if it does not exist, ``InputError`` if it is invalid or a field has another type.
    """
    return read_own_object(path, _KINDS[path.name], *_WHAT)


TASK_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Valid names of tasks, which are also folders, and of sets of examples."""
TASK_NAME_RULE = "use letters, digits and _, and - and . but for the first character, 100 at most"


def set_name(of: str, kind: str, name: str) -> str:
    """How a set of ``kind`` (``dev`` or ``test``) is called: by ``of``, its task or kind, and by its own ``name``
    unless that is its kind, as of the only set.
    """
    return of if name == kind else f"{of} {name}"


def is_multitask(folder: Path) -> bool:
    """Whether ``folder`` is a multitask model, with a shared encoder."""
    return (folder / MULTITASK_FILE).is_file()


def task_names(folder: Path) -> tuple[str, ...]:
    """The tasks of a multitask model, in the order of training.

    Ignores names in ``multitask.json`` without a folder in ``tasks/``.
    """
    tasks_folder = folder / TASKS
    names = [
        file.parent.name
        for file in sorted(tasks_folder.glob(f"*/{TASK_FILE}"))
        if TASK_NAME.fullmatch(file.parent.name) and not file.parent.is_symlink() and file.is_file()
    ]
    order: list[str] = read_described(folder / MULTITASK_FILE).get("tasks") or []
    return tuple(sorted(names, key=lambda name: order.index(name) if name in order else len(order)))


GraphInput = Literal["attention_mask", "token_type_ids", "position_ids", "word_vectors"]
"""Optional inputs of a graph in addition to ``inputs_embeds``."""
COMPILED_FILE = "compiled.json"
"""Settings of a compiled model."""
EMBEDDING_FILE = "embedding.safetensors"
"""Embedding of a compiled model, which is not in the graph."""
GRAPH_FILE = "model.onnx"
"""Graph of a compiled model."""


@dataclass(frozen=True)
class CompiledSettings:
    """Settings of a compiled model."""

    quantize: Quantize
    head: str
    """Head as in ``Architecture.heads``, such as ``TokenClassification``."""
    inputs: tuple[GraphInput, ...]
    """The graph's inputs after ``inputs_embeds``, in order; its only output is ``logits``."""

    @classmethod
    def read(cls, folder: Path) -> "CompiledSettings | None":
        """Read ``compiled.json``; ``None`` if the model is not compiled, ``InputError`` if the file is invalid."""
        file = folder / COMPILED_FILE
        if not file.is_file():
            return None
        return read_own(file, cls, "compiled model", "compile the model again")

    def write(self, folder: Path) -> None:
        """Write ``compiled.json``."""
        write_json(folder / COMPILED_FILE, asdict(self))
