"""Write a checkpoint with a larger vocabulary; other weights do not change."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError
from greenadapt.store.arrays import Array, StreamedArray, row_blocks, same_arrays, write_arrays
from greenadapt.store.files import read_own

_SIDE_FILES = ("modules.json", "config_sentence_transformers.json", "sentence_*_config.json")
_MODULE_FILES = ("*.json", "*.safetensors", "*.txt")
_METADATA = {"format": "pt"}  # transformers refuses a file without it
Tensor = Array | StreamedArray


@dataclass(frozen=True)
class _Module:
    """An entry of ``modules.json``: the name of the module's folder."""

    path: str


def write_expanded(
    checkpoint: Checkpoint,
    new_rows: Tensor,
    folder: Path,
    *,
    replaced: Mapping[int, Array] | None = None,
) -> None:
    """Write ``config.json`` and the weights of ``checkpoint``, with ``new_rows`` (n, dim) appended to the embedding.

    Existing rows do not change, except ``replaced`` (id → (dim,)); new ones get the model's type. The output of a
    language model grows, too, without changing the logits of existing ids: a weight tied to the embedding gets the same
    rows, another weight zeros; the bias gets the smallest existing bias, so that no new word is favoured. ``new_rows``
    may be read twice. Raises ``InputError`` if the rows have the wrong width, or a value is too large for that type.
    """
    if new_rows.shape[1] != checkpoint.dim:
        raise InputError(
            f"new rows have {new_rows.shape[1]} dimensions, the embedding of {checkpoint.folder} has {checkpoint.dim}",
            "align the vectors with this model",
        )
    n_new, replaced = new_rows.shape[0], replaced or {}
    # Name → the new rows, and the replaced ones.
    changes: dict[str, tuple[Tensor, Mapping[int, Array]]] = {checkpoint.embedding_name: (new_rows, replaced)}
    if checkpoint.decoder_name is not None:
        decoder = checkpoint[checkpoint.decoder_name]
        # The new rows are in the space of the embedding, which differs from that of an untied decoder.
        if same_arrays(decoder, checkpoint.embedding()):
            changes[checkpoint.decoder_name] = new_rows, replaced
        else:
            changes[checkpoint.decoder_name] = _constant(0, (n_new, decoder.shape[1]), decoder), {}
    for name in checkpoint.bias_names:
        bias = checkpoint[name]
        changes[name] = _constant(bias.min(), (n_new,), bias), {}
    tensors: dict[str, Tensor] = {
        name: _extend(name, checkpoint[name], *changes[name]) if name in changes else checkpoint[name]
        for name in checkpoint.names
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder, tensors)
    config = {**checkpoint.config, "vocab_size": checkpoint.n_rows + n_new}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def copy_side_files(source: Path, folder: Path) -> None:
    """Copy the settings and modules of sentence-transformers.

    Module folders hold pooling, normalisation and dense layers. Copies no tokenizer, code or pickle. Raises
    ``InputError`` if the list of modules is broken.
    """
    for pattern in _SIDE_FILES:
        for file in source.glob(pattern):
            shutil.copyfile(file, folder / file.name)
    listed = source / "modules.json"
    modules = read_own(listed, list[_Module], "model", "download the model again") if listed.is_file() else []
    for name in (module.path.rstrip("/") for module in modules):
        # The list is untrusted: a path could name any folder on the machine.
        if name in ("", ".", "..") or Path(name).name != name or not (source / name).is_dir():
            continue
        (folder / name).mkdir(exist_ok=True)
        for file in chain.from_iterable((source / name).glob(pattern) for pattern in _MODULE_FILES):
            shutil.copyfile(file, folder / name / file.name)


def _extend(name: str, weight: Array, new_rows: Tensor, replaced: Mapping[int, Array]) -> Tensor:
    """The rows of ``weight``, except ``replaced``, and ``new_rows``, in its type."""
    target = np.dtype(weight.dtype)

    def pieces() -> Iterator[Array]:
        begin = 0
        for block in row_blocks(weight):
            ids = [row for row in replaced if begin <= row < begin + len(block)]
            if ids:
                block = block.astype(np.promote_types(block.dtype, np.float32))  # to detect overflow
                block[np.array(ids) - begin] = [replaced[row] for row in ids]
            yield _convert(block, target, name)
            begin += len(block)
        for block in new_rows.pieces if isinstance(new_rows, StreamedArray) else row_blocks(new_rows):
            yield _convert(block, target, name)

    return StreamedArray((len(weight) + new_rows.shape[0], *weight.shape[1:]), target, pieces())


def _convert(block: Array, dtype: "np.dtype[Any]", name: str) -> Array:
    with np.errstate(over="ignore"):
        converted = block.astype(dtype, copy=False)
    lost = np.isfinite(block) & ~np.isfinite(converted) if converted is not block else np.False_
    if lost.any():
        value = float(block[lost][0])
        raise InputError(
            f"{name} has the value {value:g}, too large for {dtype.name}", "convert the model to float32 first"
        )
    return converted


def _constant(value: Any, shape: tuple[int, ...], like: Array) -> Array:
    return np.broadcast_to(np.asarray(value, like.dtype), shape)


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``model.safetensors``."""
    write_arrays(folder / "model.safetensors", tensors, _METADATA)
