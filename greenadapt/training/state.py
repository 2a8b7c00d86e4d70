"""A training state on disk, from which a killed run goes on: tensors and JSON, replaced as a whole."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from greenadapt.errors import InputError
from greenadapt.storage.files import Json, beside, publish_folder, write_json
from greenadapt.storage.own_json import read_own_object
from greenadapt.storage.ownership import MARK

TENSORS, POSITION, RECORD = "state.safetensors", "state.json", "record.json"
STATE_HINT = "remove this folder to train from the beginning"


@dataclass(frozen=True, eq=False)
class State:
    """What a run needs to go on: tensors by name, its position, and what its caller keeps beside them."""

    tensors: Mapping[str, torch.Tensor]
    position: Json
    record: Json


def save_state(folder: Path, state: State) -> None:
    """Write ``state`` as ``folder``; a kill at any moment leaves the old state or the new one there, whole."""
    from greenadapt.models.weights import write_tensors

    work = beside(folder, "new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    write_tensors(state.tensors, work / TENSORS)
    write_json(work / POSITION, state.position)
    write_json(work / RECORD, state.record)
    publish_folder(work, folder)


def load_state(folder: Path) -> State | None:
    """The state in ``folder``, on the CPU, ``None`` if there is none; raises ``InputError`` if it is broken."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    old = beside(folder, "old")
    if not folder.exists() and old.exists():  # killed between two renames, where folders cannot be exchanged
        with suppress(FileNotFoundError):  # another process of the run did it
            old.rename(folder)
    if not (folder / POSITION).is_file():
        return None
    position, record = (read_state_file(folder / name) for name in (POSITION, RECORD))
    try:
        return State(load_file(folder / TENSORS), position, record)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{folder / TENSORS} cannot be read ({error})", STATE_HINT) from None


def read_state_file(path: Path) -> Json:
    """The JSON object in a file of a training state; raises ``MissingError`` or ``InputError`` if it holds none."""
    return read_own_object(path, dict[str, Any], "training state", STATE_HINT)


def remove_state(folder: Path) -> None:
    """Remove from ``folder`` what only an unfinished run needs: all that is hidden."""
    for path in folder.glob(".*"):
        if path.name == MARK:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
