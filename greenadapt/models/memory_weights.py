"""What a model has learnt about the memory of a general model, as files in its folder."""

import json
from pathlib import Path
from typing import Any

import torch

from greenadapt.checkpoints.layout import MEMORY_FILE, MEMORY_FOLDER
from greenadapt.checkpoints.writer import write_weights
from greenadapt.errors import InputError, MissingError
from greenadapt.models.tensors import as_array, read_tensors, shapes_of
from greenadapt.storage.arrays import write_arrays
from greenadapt.storage.files import write_json

_GENERAL = "general."
Tensors = dict[str, torch.Tensor]


def write_memory(model: Any, folder: Path) -> None:
    """Write what is learnt about a memory, and the general model, where it was trained, as a folder of its own."""
    memory = getattr(model, "memory", None)
    if memory is None:
        return
    write_arrays(
        folder / MEMORY_FILE, {name: as_array(weight) for name, weight in _learnt(model).items()}, {"format": "pt"}
    )
    if not memory.frozen:
        general = folder / MEMORY_FOLDER
        general.mkdir(exist_ok=True)
        write_weights(general, {name: as_array(weight) for name, weight in memory.general.state_dict().items()})
        write_json(general / "config.json", json.loads(memory.general.config.to_json_string()))


def read_memory(model: Any, folder: Path) -> None:
    """Give ``model``, which has a memory, what ``write_memory`` wrote of it into ``folder``.

    Raises ``MissingError`` if there is no such file, ``InputError`` if it is of another kind of memory.
    """
    file = folder / MEMORY_FILE
    if not file.is_file():
        raise MissingError(f"{folder} has no {MEMORY_FILE}", "train the model again")
    weights = read_tensors(file)
    found, expected = shapes_of(weights), shapes_of(_learnt(model))
    if found != expected:
        raise InputError(f"{file} holds {found}, need {expected}", "train the model again")
    model.memory.load_state_dict(weights, strict=False)


def begin_memory(model: Any, folder: Path) -> bool:
    """Let the memory of ``model`` begin with what the model in ``folder`` has learnt about its own.

    Returns whether it does; without such a memory, or with one of other weights, ``model`` is unchanged.
    """
    file = folder / MEMORY_FILE
    weights = read_tensors(file) if file.is_file() else {}
    fits = len(weights) > 0 and shapes_of(weights) == shapes_of(_learnt(model))
    if fits:
        model.memory.load_state_dict(weights, strict=False)
    return fits


def trained_weights(model: Any) -> Tensors:
    """All weights by name but those that stay as they were, such as a frozen general model's; of weights that several
    parts share, the first name.
    """
    named = dict(model.named_parameters())
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - named.keys()
    left_out = again | {name for name, weight in named.items() if not weight.requires_grad}
    return {name: weight for name, weight in model.state_dict().items() if name not in left_out}


def _learnt(model: Any) -> Tensors:
    """The memory's weights by name, without the general model's."""
    return {name: weight for name, weight in model.memory.state_dict().items() if not name.startswith(_GENERAL)}
