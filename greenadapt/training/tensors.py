"""Arrays as tensors and tensors as arrays, float32 where they have floating point numbers, and tensors in files."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from greenadapt.arrays import Array, ArrayFile


def as_tensor(array: Array) -> torch.Tensor:
    """A copy in memory."""
    is_whole = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    return torch.from_numpy(np.array(array, array.dtype if is_whole else np.float32))


def as_array(tensor: torch.Tensor) -> Array:
    """The tensor in the CPU's memory."""
    array: Array = (tensor.float() if tensor.is_floating_point() else tensor).detach().cpu().numpy()
    return array


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, by name; raises ``InputError`` where it is none."""
    file = ArrayFile(path)
    return {name: as_tensor(file[name]) for name in file.names}


def write_tensors(tensors: Mapping[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as a safetensors file, each in its own type; raises ``OSError`` where the disk is full."""
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
