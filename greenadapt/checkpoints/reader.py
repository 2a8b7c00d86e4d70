"""Read a pretrained model folder without torch: its configuration and memory-mapped weights."""

import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.architectures import ARCHITECTURES, read_model_type
from greenadapt.checkpoints.layout import COMPILED_FILE, EMBEDDING_FILE
from greenadapt.errors import InputError, MissingError, require
from greenadapt.store.arrays import CODES, Array, ArrayFile, require_finite
from greenadapt.store.files import Json, read_object

StoredWeights = ArrayFile | dict[str, Array]
OLD_WEIGHTS = "pytorch_model.bin"
_OLD_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Old name → new name, for ends of names in weights converted from TensorFlow."""
_FOREIGN = ("tf_model*.h5", "*.ckpt*", "flax_model*.msgpack", "*.ot", "*.gguf", "rust_model*")
"""Weights of other frameworks."""
_FORMS = (("", ""), ("_", ""), ("_", "_internal"))
CODE_KEYS = (
    "auto_map",
    *(f"{prefix}{part}_implementation{end}" for part in ("attn", "experts") for prefix, end in _FORMS),
    "quantization_config",
)
"""Keys of ``config.json`` that make transformers run code from the hub or import other packages."""


class Checkpoint:
    """A model folder: ``config``, ``architecture``, and the weights by name in their original element type.

    ``config`` excludes ``auto_map`` and other keys that can name code, which is never run or copied. ``model_type``
    is inferred if it is missing, as before transformers 2.3.
    ``checkpoint[name]`` is a read-only, memory-mapped array; names are those of current transformers. Reads
    safetensors, and ``pytorch_model.bin`` through torch's weights-only loader; both may be sharded. Raises
    ``InputError`` for a model type that is not in ``ARCHITECTURES``, for damaged files, and for a configuration that
    does not match the sizes of the weights; ``MissingError`` if there are no weights.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = read_object(folder / "config.json", "model folder", "download the model again")
        for name in CODE_KEYS:
            self.config.pop(name, None)
        model_type = read_model_type(self.config, folder)
        if model_type is None:
            raise InputError(
                f"{folder / 'config.json'} has no model_type, and neither its architectures nor other settings tell it",
                'write it there, such as "model_type": "bert"',
            )
        self.config["model_type"] = model_type
        if model_type not in ARCHITECTURES:
            raise InputError(
                f"{folder} holds a model of type {model_type}, which greenadapt does not support",
                f"supported are {', '.join(ARCHITECTURES)}",
            )
        self.architecture = architecture = ARCHITECTURES[model_type]
        self.is_compiled = (folder / COMPILED_FILE).is_file()
        """Whether all weights except the embedding are in a compiled graph."""
        weights = _open_weights(folder)
        self._weights = {_current_name(name): (file, name) for name, file in weights.items()}
        names = (architecture.prefix + architecture.embedding, architecture.embedding)
        present = [name for name in names if name in self._weights]
        if not present:
            raise InputError(f"{folder} has no weight {' or '.join(dict.fromkeys(names))}", "download the model again")
        self.embedding_name = present[0]
        self._prefix = architecture.prefix if self.embedding_name.startswith(architecture.prefix) else ""
        self.n_rows, self.dim = self[self.embedding_name].shape
        self._check_rows([name for name in (architecture.decoder, *architecture.biases) if name in self._weights])
        self._check_sizes()
        self.decoder_name = architecture.decoder if architecture.decoder in self._weights else None
        self.bias_names = [name for name in architecture.biases if name in self._weights]

    @property
    def files(self) -> list[Path]:
        """The files of the weights, including the index of shards."""
        for pattern in ("model*.safetensors*", "pytorch_model*.bin*", *([EMBEDDING_FILE] if self.is_compiled else [])):
            if files := sorted(self.folder.glob(pattern)):
                return files
        return []

    @property
    def names(self) -> list[str]:
        """Names of all weights, in the order of the files."""
        return list(self._weights)

    def __getitem__(self, name: str) -> Array:
        weights, stored = self._weights[name]
        return weights[stored]

    def setting(self, *names: str) -> Any:
        """The value of the first of ``names`` in the configuration; ``None`` if it has none."""
        return next((self.config[name] for name in names if name in self.config), None)

    def embedding(self) -> Array:
        """The input embedding, (n_rows, dim), memory-mapped, in the checkpoint's element type."""
        return self[self.embedding_name]

    def first_new_id(self, n_tokens: int) -> int:
        """Id of the first new row: the number of rows, which may exceed the tokenizer's ``n_tokens``.

        Raises ``InputError`` if the tokenizer has more ids than the embedding has rows.
        """
        if self.n_rows < n_tokens:
            raise InputError(
                f"{self.folder}: the tokenizer has {n_tokens} ids, the embedding only {self.n_rows} rows",
                "use the tokenizer that belongs to this model",
            )
        return self.n_rows

    def require_finite(self, names: Iterable[str] | None = None) -> None:
        """Raise ``InputError`` if one of the weights ``names``, by default all, has NaN or infinity."""
        for name in self.names if names is None else names:
            require_finite(self[name], name, self.folder)

    def _check_sizes(self) -> None:
        """Raise ``InputError`` if the configuration does not match the sizes of the weights."""
        kind = self.architecture
        for size in kind.sizes:
            name, setting = self._prefix + size.weight, self.config.get(size.setting)
            if setting is None or name not in self._weights:
                continue
            shape = self[name].shape
            actual = shape[size.axis] / size.times if len(shape) == 2 else 0
            if setting != actual:
                raise self._mismatch_error(f"{size.setting} is {setting!r}", f"{name} has {actual:.10g}")
        if self.is_compiled:
            return
        setting = self.config.get(kind.n_layers)
        layers = "|".join(map(re.escape, filter(None, (kind.layers, kind.published_layers))))
        pattern = re.compile(rf"({re.escape(self._prefix)}(?:{layers})\.)(\d+)\.(.*)")
        numbers = {match[2] for name in self._weights if (match := pattern.match(name))}
        if setting not in (None, len(numbers)):
            raise self._mismatch_error(f"{kind.n_layers} is {setting!r}", f"the weights have {len(numbers)}")

    def _mismatch_error(self, setting: str, actual: str) -> InputError:
        return InputError(
            f"{self.folder / 'config.json'}: {setting}, but {actual}",
            "download config.json and the weights of the same model again",
        )

    def _check_rows(self, output_names: list[str]) -> None:
        sizes: Json = {name: self[name].shape[0] for name in output_names}
        sizes["vocab_size in config.json"] = self.config.get("vocab_size", self.n_rows)
        for name, size in sizes.items():
            if size != self.n_rows:
                raise InputError(
                    f"{self.folder}: {self.embedding_name} has {self.n_rows} rows, {name} is {size}",
                    "download config.json and the weights of the same model again",
                )


def _open_weights(folder: Path) -> dict[str, StoredWeights]:
    """Open the files of weights: name of each weight → its file; prefers safetensors."""
    openers: dict[str, Callable[[Path], StoredWeights]] = {
        "model.safetensors": ArrayFile,
        OLD_WEIGHTS: open_torch_file,
    }
    if (folder / COMPILED_FILE).is_file():
        openers = {EMBEDDING_FILE: ArrayFile}
    for file, opener in openers.items():
        if (folder / file).is_file():
            opened = opener(folder / file)
            return dict.fromkeys(opened.names if isinstance(opened, ArrayFile) else opened, opened)
        if (folder / f"{file}.index.json").is_file():
            return _open_shards(folder / f"{file}.index.json", opener)
    foreign = sorted(path.name for pattern in _FOREIGN for path in folder.glob(pattern))
    raise MissingError(
        f"{folder} has no model.safetensors" + (f", only {foreign[0]} of another framework" if foreign else ""),
        "save the model with transformers' save_pretrained",
    )


def _current_name(name: str) -> str:
    """The name of a weight in current transformers."""
    for old_end, new_end in _OLD_ENDS.items():
        if name.endswith(old_end):
            return name.removesuffix(old_end) + new_end
    return name


def _open_shards(index: Path, opener: Callable[[Path], StoredWeights]) -> dict[str, StoredWeights]:
    shard_of = read_object(index, "model folder", "download the model again").get("weight_map")
    if not isinstance(shard_of, dict):
        raise InputError(f"{index} has no weight_map", "download the model again")
    opened: dict[str, StoredWeights] = {}
    for shard in shard_of.values():
        # The index is untrusted: a path could name any file on the machine.
        if not isinstance(shard, str) or "/" in shard or "\\" in shard or not (index.parent / shard).is_file():
            raise InputError(f"{index} names {shard!r}, which is not a file in its folder", "download the model again")
        if shard not in opened:
            opened[shard] = opener(index.parent / shard)
    for name, shard in shard_of.items():
        if name not in opened[shard]:
            raise InputError(f"{index} says that {shard} contains {name}, but it does not", "download the model again")
    return {name: opened[shard] for name, shard in shard_of.items()}


def open_torch_file(path: Path) -> dict[str, Array]:
    """Read the weights in a ``.bin`` file by name, memory-mapped if it is a zip archive; read-only.

    Raises ``MissingError`` if torch is not installed, ``InputError`` if torch's weights-only loader refuses the file,
    if it does not hold tensors by name, and for unsupported element types.
    """
    require("train", "torch", by=str(path), otherwise="convert the model to safetensors")
    import torch

    try:
        # Files of torch before 1.6 are not zip archives and cannot be mapped.
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # errors of torch, pickle or the archive
        raise _load_error(path, str(error)) from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise InputError(
            f"{path} does not hold weights by name",
            "save the state_dict of the model, or use a model that has model.safetensors",
        )
    return {str(name): _from_torch(tensor, f"{path}: {name}") for name, tensor in tensors.items()}


def _load_error(path: Path, reason: str) -> InputError:
    """The error for a file that torch's weights-only loader refuses; ``reason`` is the loader's message."""
    with open(path, "rb") as file:
        if file.read(64).startswith(b"version https://git-lfs"):
            return InputError(f"{path} is a Git LFS pointer, not the weights", "fetch them with git lfs pull")
    match = re.search(r"GLOBAL ([\w.]+)", reason)  # without torch's advice to load it anyway
    reason = f"it names {match[1]}" if match else "it is damaged, or contains something other than weights"
    return InputError(
        f"{path} is refused: torch's weights-only loader does not read it ({reason}), and as a pickle it could run "
        "any code",
        "convert it to safetensors if you trust it, or use a model that has model.safetensors",
    )


def _from_torch(tensor: Any, label: str) -> Array:
    """Convert ``tensor``, without a copy if possible; raises ``InputError`` with ``label`` for unsupported types."""
    import ml_dtypes
    import torch

    try:
        tensor = tensor.detach().contiguous()
        if tensor.dtype == torch.bfloat16:
            array: Array = tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        else:
            array = tensor.numpy()
    except (TypeError, RuntimeError, NotImplementedError):  # such as 8-bit floats, and sparse or quantized tensors
        array = np.empty(0, object)
    if array.dtype not in CODES:
        kind = ", ".join(
            str(attribute).removeprefix("torch.") for attribute in (tensor.dtype, tensor.layout, tensor.device)
        )
        raise InputError(
            f"{label} is a tensor of a type that is not supported ({kind})", "save it as float32, float16 or bfloat16"
        )
    array.flags.writeable = False
    return array
