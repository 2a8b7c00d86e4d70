"""Task models whose embedding has only the rows that are needed: opened from a checkpoint, and written whole again."""

import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from greenadapt.checkpoints.layout import MEMORY_FILE, MEMORY_FOLDER
from greenadapt.checkpoints.reader import Checkpoint, open_torch_file
from greenadapt.checkpoints.writer import write_weights
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.models.rows import Rows, RowTable, read_table
from greenadapt.store.arrays import Array, ArrayFile, IntArray, StreamedArray, require_finite, write_arrays
from greenadapt.store.files import Json, write_json
from greenadapt.tasks.base import HeadShape

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_LEAST_TAIL = 1024  # rows
Tensors = dict[str, torch.Tensor]


class StreamedRows:
    """Lets a model that holds ``rows`` read any row of a table: the missing rows of a batch are loaded for that batch.

    The memory needed depends on the batches, not on the table. For inference only: each call replaces the rows of the
    last batch.
    """

    def __init__(self, model: Any, rows: Rows, table: RowTable) -> None:
        self._layer = model.get_input_embeddings()
        self._rows = rows
        self.table = table
        """The whole embedding."""

    def compact(self, ids: IntArray) -> IntArray:
        """Load the rows of ``ids`` and return the position of each, int64, in the shape of ``ids``."""
        positions, is_held = self._rows.find(ids)
        missing, inverse = np.unique(ids[~is_held], return_inverse=True)
        if len(missing):
            self._load(missing)
        positions[~is_held] = len(self._rows) + inverse
        return positions

    def _load(self, ids: IntArray) -> None:
        weight, begin = self._layer.weight, len(self._rows)
        with torch.no_grad():
            if begin + len(ids) > len(weight):
                tail = max(_LEAST_TAIL, 1 << (len(ids) - 1).bit_length())
                grown = weight.new_zeros((begin + tail, weight.shape[1]))
                grown[:begin] = weight[:begin]
                weight = self._layer.weight = torch.nn.Parameter(grown, requires_grad=weight.requires_grad)
                self._layer.num_embeddings = len(grown)
            weight[begin : begin + len(ids)] = torch.from_numpy(self.table.read(ids)).to(weight.device)


def as_tensor(array: Array) -> torch.Tensor:
    """A copy in memory."""
    is_whole = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    return torch.from_numpy(np.array(array, array.dtype if is_whole else np.float32))


def share_memory(arrays: Mapping[str, Array]) -> Tensors:
    """The arrays as tensors of the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def as_array(tensor: torch.Tensor) -> Array:
    """The tensor in the CPU's memory."""
    return (tensor.float() if tensor.is_floating_point() else tensor).detach().cpu().numpy()


def read_tensors(path: Path) -> Tensors:
    """Read all tensors of a safetensors file or an old ``.bin`` by name; ``InputError`` for a broken file, and for NaN
    or infinity.
    """
    file = open_torch_file(path) if path.suffix == ".bin" else ArrayFile(path)
    names = file.names if isinstance(file, ArrayFile) else file
    for name in names:
        require_finite(file[name], name, path)
    return {name: as_tensor(file[name]) for name in names}


def write_tensors(tensors: Mapping[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as a safetensors file, each in its own type; raises ``OSError`` if the disk is full."""
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def shapes_of(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor by name."""
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def write_memory(model: Any, folder: Path) -> None:
    """Write the trained weights of a model's memory, if it has one, and the general model if it was trained too."""
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


def begin_memory(model: Any, folder: Path) -> bool:
    """Initialize the memory of ``model`` with that of the trained model in ``folder``.

    Returns whether it has weights that fit; else ``model`` does not change.
    """
    weights = _fitting_memory(model, folder)
    if weights:
        model.memory.load_state_dict(weights, strict=False)
    return bool(weights)


def read_memory(model: Any, folder: Path) -> None:
    """Read the memory of the trained model in ``folder``; raises ``InputError`` unless its file is there and fits."""
    weights = _fitting_memory(model, folder)
    if weights is None:
        raise InputError(f"{folder} has no {MEMORY_FILE} for this kind of memory", "train the model again")
    model.memory.load_state_dict(weights, strict=False)


def _fitting_memory(model: Any, folder: Path) -> Tensors | None:
    """The weights that ``write_memory`` wrote, if they are those of the kind of memory that ``model`` has."""
    file = folder / MEMORY_FILE
    weights = read_tensors(file) if file.is_file() else None
    return weights if weights is not None and shapes_of(weights) == shapes_of(_learnt(model)) else None


def trained_weights(model: Any) -> Tensors:
    """All weights by name except frozen ones, such as those of a general model; shared weights have one name."""
    named = dict(model.named_parameters())
    duplicates = {name for name, _ in model.named_parameters(remove_duplicate=False)} - named.keys()
    left_out = duplicates | {name for name, weight in named.items() if not weight.requires_grad}
    return {name: weight for name, weight in model.state_dict().items() if name not in left_out}


def _learnt(model: Any) -> Tensors:
    """The memory's weights by name, without the general model's."""
    return {name: weight for name, weight in model.memory.state_dict().items() if not name.startswith("general.")}


_PART = re.compile(r"\.(first|last)\.(weight|bias)$")
_STD = 0.02


class ExactLinear(nn.Linear):
    """A linear layer that computes in the type of its weights under autocast, too.

    In bfloat16 the logits of a long context would have many ties.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, n_outputs) from (…, d)."""
        with torch.autocast(inputs.device.type, enabled=False):
            return super().forward(inputs.to(self.weight.dtype))


class TwoLayerHead(nn.Module):
    """W_2 tanh(W_1 h + b_1) + b_2 of states h (…, d), with dropout before W_2: (…, n_outputs)."""

    def __init__(self, width: int, n_outputs: int, dropout: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), ExactLinear(width, n_outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        """(…, n_outputs) from (…, d)."""
        return self.last(self.dropout(torch.tanh(self.first(states))))


def find_last_linear(model: "PreTrainedModel") -> tuple[str, nn.Linear]:
    """The layer that gives a model's logits, and its name."""
    encoder = f"{model.base_model_prefix}."  # in some models it comes behind the head
    named = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [(name, module) for name, module in named if not name.startswith(encoder)][-1]


def shape_head(model: "PreTrainedModel", shape: HeadShape, seed: int) -> None:
    """Give a model's head the layers and the dropout of ``shape``; a new layer is drawn from N(0, 0.02) by ``seed``.

    Raises ``UsageError`` for a dropout if the head has none.
    """
    if shape.dropout is not None:
        modules = _dropouts(model)
        if not modules:
            raise UsageError(f"--head-dropout, but the head of a {type(model).__name__} has no dropout", "leave it out")
        for module in modules:
            module.p = shape.dropout
    if shape.layers == 2 and not any(isinstance(module, TwoLayerHead) for module in model.modules()):
        with torch.random.fork_rng(devices=[]):
            head = _deepen(model)
        nn.init.normal_(head.first.weight, std=_STD, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.first.bias)


def split_head(weights: Tensors) -> tuple[Tensors, Tensors]:
    """Split off the first layer of a head of two: the weights as transformers names them, and those of the first layer
    (``weight`` and ``bias``), empty if the head has one layer.
    """
    plain: Tensors = {}
    first: Tensors = {}
    for name, weight in weights.items():
        part = _PART.search(name)
        if part and part[1] == "first":
            first[part[2]] = weight
        else:
            plain[name.replace(".last.", ".") if part else name] = weight
    return plain, first


def load_first(model: "PreTrainedModel", first: Tensors) -> None:
    """Add a first layer with the weights of ``split_head``, if there are any, to a head of one layer."""
    if first:
        _deepen(model).first.load_state_dict(first)


def _dropouts(model: "PreTrainedModel") -> list[nn.Dropout]:
    """Those of the head."""
    encoder = f"{model.base_model_prefix}."
    named = model.named_modules()
    return [module for name, module in named if isinstance(module, nn.Dropout) and not name.startswith(encoder)]


def _deepen(model: "PreTrainedModel") -> TwoLayerHead:
    name, layer = find_last_linear(model)
    dropout = max((module.p for module in _dropouts(model)), default=0.0)
    head = TwoLayerHead(layer.in_features, layer.out_features, dropout)
    head.last.load_state_dict(layer.state_dict())
    head.to(layer.weight.device, layer.weight.dtype).train(model.training)
    model.set_submodule(name, head)
    return head


HEADS = {
    "TokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "SequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "QuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
}
"""Head → name of transformers' mapping from a configuration's class to the model's."""
ENCODER = "MODEL_MAPPING"
"""The same mapping for models without a head."""
_MEMORY = "memory."
_FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True, eq=False)
class InferenceModel:
    """A model for inference, in evaluation mode on the CPU; ``rows`` reads the whole embedding."""

    model: Any
    rows: StreamedRows
    checkpoint: Checkpoint
    """The folder of the whole model."""
    head: str
    """That of the only or first task; empty for an encoder alone."""
    task: str | None = None
    """The only or first task of a multitask model."""


def open_model(
    checkpoint: Checkpoint,
    head: str,
    head_config: Json,
    rows: Rows,
    seed: int,
    shape: HeadShape = HeadShape(),  # noqa: B008  (it is frozen)
) -> "PreTrainedModel":
    """The model of ``checkpoint`` with a ``head``, float32, whose embedding has only ``rows``, in evaluation mode.

    Equals ``AutoModelFor<head>.from_pretrained(folder, **head_config)`` after ``torch.manual_seed(seed)``, a new head
    included, but for the rows that are left out; the table is never read whole. A head for other labels, or of another
    ``shape``, is newly initialized. Never runs code of the folder.

    Raises ``InputError`` if the checkpoint lacks weights of the encoder, ``UsageError`` for a shape that does not fit.
    """
    weights, first = split_head(read_weights(checkpoint))
    has_same_shape = bool(first) == (shape.layers == 2)
    if not has_same_shape or _labels(checkpoint.config) != _labels(head_config):
        prefix = checkpoint.architecture.prefix
        if checkpoint.embedding_name.startswith(prefix):  # a head for other labels, even of the same number
            weights = {name: weight for name, weight in weights.items() if name.startswith(prefix)}
            first = {}
    model, new, _ = load_model(checkpoint, HEADS[head], weights, rows, seed, head_config)
    load_first(model, first)
    shape_head(model, shape, seed)
    _make_exact(model)
    refuse_lost(checkpoint, [name for name in new if name.startswith(f"{model.base_model_prefix}.")])
    return model


def open_encoder(checkpoint: Checkpoint, n_rows: int) -> "PreTrainedModel":
    """The encoder of ``checkpoint`` alone, float32, with the first ``n_rows`` of its embedding, in evaluation mode.

    Never runs code of the folder. Raises ``InputError`` if the checkpoint lacks weights of the encoder.
    """
    model, new, _ = load_model(checkpoint, ENCODER, read_weights(checkpoint), Rows.all(n_rows))
    refuse_lost(checkpoint, new)
    model.pooler = None  # nothing reads it
    return model


def trained_table(model: Any, rows: Rows, source: Checkpoint, shrink: float = 1.0) -> RowTable:
    """The whole embedding of ``source`` after the training of ``model``, which holds ``rows`` of it.

    ``shrink``, for all others, is the product of 1 - learning rate · weight decay over the steps.
    """
    return RowTable(source.embedding(), rows, as_array(model.get_input_embeddings().weight), shrink)


def write_model(model: "PreTrainedModel", table: RowTable, folder: Path) -> None:
    """Write the whole model, float32, for plain ``AutoModelFor<head>.from_pretrained(folder)``.

    Its embedding is ``table``, streamed. Copies no tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_memory(model, folder)
    tensors: dict[str, Array | StreamedArray] = dict(_arrays(model))
    tensors[_embedding_name(model)] = StreamedArray(table.embedding.shape, _FLOAT32, table.blocks())
    write_weights(folder, tensors)
    write_config(model, len(table.embedding), folder)


def write_config(model: "PreTrainedModel", n_rows: int, folder: Path) -> None:
    """Write ``config.json`` of a model, float32, whose whole embedding has ``n_rows``."""
    config = json.loads(model.config.to_json_string())
    config |= {"vocab_size": n_rows, "architectures": [type(model).__name__], "dtype": "float32"}
    config.pop("auto_map", None)  # it names code, which is not copied
    write_json(folder / "config.json", config)


def open_task_model(folder: Path, *, has_head: bool = True) -> InferenceModel:
    """Open a folder of ``write_model``; without ``has_head`` its encoder.

    Raises ``MissingError`` for another folder, ``InputError`` if weights are missing, or a head of ``HEADS`` that is
    asked for.
    """
    if not (folder / "config.json").is_file():
        raise MissingError(f"{folder} is not a task model: it has no config.json", "make one with finetune")
    checkpoint, table = read_table(folder)
    weights, first = split_head(read_weights(checkpoint))
    head = _head_of(checkpoint, folder) if has_head else ""
    rows = Rows.all(1 + int(checkpoint.config.get("pad_token_id") or 0))
    mapping = HEADS[head] if has_head else ENCODER
    model, new, _ = load_model(checkpoint, mapping, weights, rows, table=table)
    if new:
        name = type(model).__name__
        raise InputError(f"{folder} lacks {len(new)} weights of {name}, such as {new[0]}", "train it again")
    load_first(model, first)
    if has_head:
        _make_exact(model)
    return InferenceModel(model, StreamedRows(model, rows, table), checkpoint, head)


def _head_of(checkpoint: Checkpoint, folder: Path) -> str:
    architecture = str((checkpoint.config.get("architectures") or [""])[0])
    head = architecture.rpartition("For")[2]
    if head not in HEADS:
        raise InputError(f"{folder} holds a {architecture or 'model'}, no task model", "make one with finetune")
    return head


def takes_segments(model: Any) -> bool:
    """Whether a model takes ``token_type_ids``, which separate the two parts of its input."""
    has_argument = "token_type_ids" in inspect.signature(model.forward).parameters
    return has_argument and getattr(model.config, "type_vocab_size", 0) > 1


def load_model(  # noqa: PLR0913
    checkpoint: Checkpoint,
    mapping: str,
    weights: Tensors,
    rows: Rows,
    seed: int = 0,
    config: Json | None = None,
    table: RowTable | None = None,
) -> tuple["PreTrainedModel", list[str], list[str]]:
    """The model of transformers' ``mapping``, the names of its new weights, and the names of ``weights`` that it lacks.

    Its embedding has only ``rows`` of ``table``, by default of the checkpoint's embedding.
    """
    import transformers

    table = table or RowTable.of(checkpoint.embedding())
    weights = {**weights, checkpoint.embedding_name: torch.from_numpy(table.read(rows.ids))}
    config = {**(config or {}), "vocab_size": len(rows)}

    with _quiet(), convert_errors(checkpoint.folder / "config.json"):
        auto: Any = transformers.AutoConfig
        config_class: Any = type(auto.for_model(checkpoint.architecture.model_type))  # old files do not state a type
        settings = config_class.from_pretrained(checkpoint.folder, return_dict=True, **config)
        _leave_out_code(settings)
        model_class = getattr(transformers, mapping)[type(settings)]
        torch.manual_seed(seed)
        model, info = model_class.from_pretrained(
            None,
            config=settings,
            state_dict=weights,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # of a head for other labels, which is newly initialized
            output_loading_info=True,
        )
    new = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    return model, sorted(new), sorted(info["unexpected_keys"])


@contextmanager
def convert_errors(source: object) -> Iterator[None]:
    """Raise ``InputError``, naming ``source``, if transformers makes no model of its settings."""
    from huggingface_hub.errors import StrictDataclassError

    try:
        yield
    except (StrictDataclassError, ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError,
            TypeError, ValueError) as error:  # fmt: skip
        raise InputError(
            f"{source} does not describe a model ({' '.join(str(error).split())})", "fetch the model again"
        ) from None


def _leave_out_code(settings: Any) -> None:
    """Ignore the kernels and the quantization of a ``config.json``: transformers would fetch such code and run it."""
    settings._attn_implementation = settings._experts_implementation = None
    if hasattr(settings, "quantization_config"):
        del settings.quantization_config


def refuse_lost(checkpoint: Checkpoint, new: list[str]) -> None:
    """Raise ``InputError`` for weights of the encoder that had to be newly initialized; a pooler may be missing."""
    lost = [name for name in new if "pooler" not in name]
    if lost:
        raise InputError(
            f"{checkpoint.folder} lacks {len(lost)} of the encoder's weights, such as {lost[0]}",
            "fetch the model again",
        )


def _make_exact(model: "PreTrainedModel") -> None:
    find_last_linear(model)[1].__class__ = ExactLinear


def _labels(config: Json) -> Json:
    return {str(number): label for number, label in (config.get("id2label") or {}).items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting that a head is new, or that special ids lie beyond a small embedding."""
    import transformers

    logging: Any = transformers.utils.logging
    level, shows_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shows_bar:
            logging.enable_progress_bar()


def read_weights(checkpoint: Checkpoint) -> Tensors:
    """All weights except those with an entry per row of the vocabulary.

    Raises ``InputError`` for a compiled model, and for NaN or infinity.
    """
    if checkpoint.is_compiled:
        raise InputError(
            f"{checkpoint.folder} is a compiled model, which torch cannot load", "give the model that it was made from"
        )
    vocabulary = {checkpoint.embedding_name, checkpoint.decoder_name, *checkpoint.bias_names}
    names = [name for name in checkpoint.names if name not in vocabulary]
    checkpoint.require_finite(names)
    return {name: as_tensor(checkpoint[name]) for name in names}


def _arrays(model: "PreTrainedModel") -> dict[str, Array]:
    """All weights by name but the memory's; floating point numbers as float32."""
    weights = model.state_dict()
    return {name: as_array(tensor) for name, tensor in weights.items() if not name.startswith(_MEMORY)}


def _embedding_name(model: "PreTrainedModel") -> str:
    layer = model.get_input_embeddings()
    return next(f"{name}.weight" for name, module in model.named_modules() if module is layer)
