"""Arrays as tensors, and a linear layer that depends on no other row."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import linear

from greenadapt.checkpoints.reader import open_torch_file
from greenadapt.storage.arrays import Array, ArrayFile
from greenadapt.tasks.base import Features


def as_tensor(array: Array) -> torch.Tensor:
    """A copy in memory."""
    is_whole = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    return torch.from_numpy(np.array(array, array.dtype if is_whole else np.float32))


def as_array(tensor: torch.Tensor) -> Array:
    """The tensor in the CPU's memory."""
    array: Array = (tensor.float() if tensor.is_floating_point() else tensor).detach().cpu().numpy()
    return array


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, or of an old ``.bin``, by name; raises ``InputError`` if it is none."""
    if path.suffix == ".bin":
        return {name: as_tensor(array) for name, array in open_torch_file(path).items()}
    file = ArrayFile(path)
    return {name: as_tensor(file[name]) for name in file.names}


def write_tensors(tensors: Mapping[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as a safetensors file, each in its own type; raises ``OSError`` if the disk is full."""
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def exact_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b (…, n) of x (…, d), W (n, d) and b (n,), in the type of W under autocast, too.

    In bfloat16 the logits of a long context would have many ties.
    """
    with torch.autocast(inputs.device.type, enabled=False):
        return linear(inputs.to(weight.dtype), weight, bias)


class MemoryInput(Protocol):
    """Where the general model's part of a batch comes from."""

    def read(self, inputs: Features) -> dict[str, torch.Tensor]:
        """What the model is called with beside its own ``inputs``, whose ids are of its whole vocabulary."""


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor by name."""
    return {name: tuple(weight.shape) for name, weight in weights.items()}
