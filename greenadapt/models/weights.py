"""Task models whose embedding has only the rows that are needed: opened from a checkpoint, and written whole again."""

import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import linear

from greenadapt.checkpoints.layout import MEMORY_FILE, MEMORY_FOLDER, WEIGHTS_FILE
from greenadapt.checkpoints.reader import Checkpoint, open_torch_file
from greenadapt.checkpoints.writer import write_weights
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.models.rows import Rows, RowTable
from greenadapt.storage.arrays import Array, ArrayFile, IntArray, Streamed, write_arrays
from greenadapt.storage.files import Json, write_json
from greenadapt.tasks.base import Features, HeadShape

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_LEAST_TAIL = 1024  # rows


class StreamedRows:
    """Any rows of a table in a model that holds ``rows`` for good, and beyond them only what one batch needs.

    The memory that it takes depends on the batches, not on the table. It is for inference: a batch's rows are gone with
    the next call.
    """

    def __init__(self, model: Any, rows: Rows, table: RowTable) -> None:
        self._layer = model.get_input_embeddings()
        self._rows = rows
        self._table = table

    def compact(self, ids: IntArray) -> IntArray:
        """Load the rows of ``ids`` and say where each now is, int64, in the shape of ``ids``."""
        positions, held = self._rows.find(ids)
        others, places = np.unique(ids[~held], return_inverse=True)
        if len(others):
            self._load(others)
        positions[~held] = len(self._rows) + places
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
            weight[begin : begin + len(ids)] = torch.from_numpy(self._table.read(ids)).to(weight.device)


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


_FIRST, _LAST = ".first.", ".last."
_PART = re.compile(r"\.(first|last)\.(weight|bias)$")
_STD = 0.02


class ExactLinear(nn.Linear):
    """A linear layer that is ``exact_linear``."""

    def forward(self, inputs: Tensor) -> Tensor:
        """(…, n_outputs) from (…, d)."""
        return exact_linear(inputs, self.weight, self.bias)


class TwoLayerHead(nn.Module):
    """W_2 tanh(W_1 h + b_1) + b_2 of states h (…, d), with dropout before W_2: (…, n_outputs)."""

    def __init__(self, width: int, n_outputs: int, dropout: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), ExactLinear(width, n_outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        """(…, n_outputs) from (…, d)."""
        output: Tensor = self.last(self.dropout(torch.tanh(self.first(states))))
        return output


def last_linear(model: "PreTrainedModel") -> tuple[str, nn.Linear]:
    """The layer that gives a model's logits, and its name."""
    encoder = f"{model.base_model_prefix}."  # in some models it comes behind the head
    named = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [(name, module) for name, module in named if not name.startswith(encoder)][-1]


def shape_head(model: "PreTrainedModel", shape: HeadShape, seed: int) -> None:
    """Give a model's head the layers and the dropout of ``shape``; a layer that it lacks is drawn by ``seed`` from N(0,
    0.02).

    Raises ``UsageError`` for a dropout if the head has none.
    """
    if shape.dropout is not None:
        modules = _dropouts(model)
        if not modules:
            raise UsageError(f"--head-dropout, but the head of a {type(model).__name__} has no dropout", "leave it out")
        for module in modules:
            module.p = shape.dropout
    if shape.layers == 2 and not _is_deep(model):
        with torch.random.fork_rng(devices=[]):
            head = _deepened(model)
        nn.init.normal_(head.first.weight, std=_STD, generator=torch.Generator().manual_seed(seed))
        nn.init.zeros_(head.first.bias)


def split_head(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a model as transformers names them, and those of the first of two layers of its head by what is
    behind the layer's name, none if its head has one.
    """
    first: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if (part := _PART.search(name)) is None:
            others[name] = weight
        elif part[1] == "first":
            first[part[2]] = weight
        else:
            others[name.replace(_LAST, ".")] = weight
    return others, first


def load_first(model: "PreTrainedModel", first: dict[str, Tensor]) -> None:
    """Put the weights of ``split_head`` into a model with one layer, if there are any: it has two then."""
    if first:
        _deepened(model).first.load_state_dict(first)


def _is_deep(model: "PreTrainedModel") -> bool:
    return any(isinstance(module, TwoLayerHead) for module in model.modules())


def _dropouts(model: "PreTrainedModel") -> list[nn.Dropout]:
    """Those of the head."""
    encoder = f"{model.base_model_prefix}."
    named = model.named_modules()
    return [one for name, one in named if isinstance(one, nn.Dropout) and not name.startswith(encoder)]


def _deepened(model: "PreTrainedModel") -> TwoLayerHead:
    name, layer = last_linear(model)
    dropout = max((module.p for module in _dropouts(model)), default=0.0)
    head = TwoLayerHead(layer.in_features, layer.out_features, dropout)
    head.last.load_state_dict(layer.state_dict())
    head.to(layer.weight.device, layer.weight.dtype).train(model.training)
    parent, _, own = name.rpartition(".")
    container: Any = model.get_submodule(parent)
    setattr(container, own, head)
    return head


HEADS = {
    "TokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "SequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "QuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
}
"""Head → name of transformers' mapping from a configuration's class to the model's."""
ENCODER = "MODEL_MAPPING"
"""The same mapping for models without a head."""
ROWS_FILE = "rows.safetensors"
_MEMORY = "memory."
_FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True, eq=False)
class TrainedRows:
    """What training has done to the embedding."""

    rows: Rows
    """The rows that the model holds, in its order."""
    shrink: float = 1.0
    """What every other row is multiplied by: the product over the steps of 1 - learning rate · weight decay."""


@dataclass(frozen=True, eq=False)
class TrainedWeights:
    """What a trained model's folder holds of one seed."""

    folder: Path
    checkpoint: Checkpoint
    """The folder of the whole model."""
    weights: dict[str, torch.Tensor]
    """All but the embedding, by name."""
    table: RowTable
    """The whole embedding."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained model for inference."""

    model: "PreTrainedModel"
    """In evaluation mode, on the CPU; may be moved."""
    rows: StreamedRows
    """The model's view of the whole embedding."""
    head: str
    checkpoint: Checkpoint
    """The folder of the whole model."""


def open_model(
    checkpoint: Checkpoint,
    head: str,
    head_config: Json,
    rows: Rows,
    seed: int,
    shape: HeadShape = HeadShape(),  # noqa: B008  (it is frozen)
) -> "PreTrainedModel":
    """The model of ``checkpoint`` with a ``head``, float32, whose embedding has only ``rows``, in evaluation mode.

    It is what ``AutoModelFor<head>.from_pretrained(folder, **head_config)`` gives after ``torch.manual_seed(seed)``,
    with the same head where that is new, and with the other rows left out; the table is never read whole. A head that
    the checkpoint has for other labels, or of another ``shape``, is newly initialized. Runs none of the folder's code.

    Raises ``InputError`` if the checkpoint lacks weights of the encoder, ``UsageError`` for a shape that does not fit.
    """
    weights, first = split_head(read_weights(checkpoint))
    is_other = bool(first) != (shape.layers == 2)
    if is_other or _labels(checkpoint.config) != _labels(head_config):
        prefix = checkpoint.architecture.prefix
        if checkpoint.embedding_name.startswith(prefix):  # a head for other labels, even of the same number
            weights = {name: weight for name, weight in weights.items() if name.startswith(prefix)}
            first = {}
    weights[checkpoint.embedding_name] = torch.from_numpy(RowTable.of(checkpoint.embedding()).read(rows.ids))
    model, new, _ = load_model(checkpoint, HEADS[head], {**head_config, "vocab_size": len(rows)}, weights, seed)
    load_first(model, first)
    shape_head(model, shape, seed)
    _keep_exact(model)
    refuse_lost(checkpoint, [name for name in new if name.startswith(f"{model.base_model_prefix}.")])
    return model


def open_encoder(checkpoint: Checkpoint, n_rows: int) -> "PreTrainedModel":
    """The encoder of ``checkpoint`` alone, float32, with the first ``n_rows`` of its embedding, in evaluation mode.

    Runs none of the folder's code. Raises ``InputError`` if the checkpoint lacks weights of the encoder.
    """
    weights = read_weights(checkpoint)
    weights[checkpoint.embedding_name] = as_tensor(checkpoint.embedding()[:n_rows])
    model, new, _ = load_model(checkpoint, ENCODER, {"vocab_size": n_rows}, weights, seed=0)
    refuse_lost(checkpoint, new)
    model.pooler = None  # nothing reads it
    return model


def write_model(model: "PreTrainedModel", trained: TrainedRows, source: Checkpoint, folder: Path) -> None:
    """Write the whole model, float32, that plain ``AutoModelFor<head>.from_pretrained(folder)`` loads.

    Its table is that of ``source`` with the model's rows in their places, streamed; ``rows.safetensors`` says which
    they are. Copies no tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_memory(model, folder)
    name, table = _embedding_name(model), _table(model, trained, source)
    tensors: dict[str, Array | Streamed] = dict(_arrays(model))
    tensors[name] = Streamed(table.embedding.shape, _FLOAT32, table.blocks())
    write_weights(folder, tensors)
    write_config(model, source, folder)
    write_arrays(folder / ROWS_FILE, {"ids": trained.rows.ids}, {"shrink": repr(trained.shrink)})


def write_config(model: "PreTrainedModel", source: Checkpoint, folder: Path) -> None:
    """Write ``config.json`` of a model, float32, that has all rows of ``source``."""
    config = json.loads(model.config.to_json_string())
    config |= {"vocab_size": source.n_rows, "architectures": [type(model).__name__], "dtype": "float32"}
    config.pop("auto_map", None)  # it names code, which is not copied
    write_json(folder / "config.json", config)


def write_rows(
    model: "PreTrainedModel", trained: TrainedRows, source: Checkpoint, full: Checkpoint, folder: Path
) -> None:
    """Write a model that ``source`` was trained to under another seed, as what sets it apart from ``full``.

    ``full`` is a folder of ``write_model``. ``weights.safetensors`` has all weights but the embedding,
    ``rows.safetensors`` the rows that differ, and as ``shrink`` what all others are to be multiplied by.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_memory(model, folder)
    written = ArrayFile(full.folder / ROWS_FILE)
    shrink = trained.shrink / float(written.metadata["shrink"])
    ids = np.union1d(trained.rows.ids, written["ids"])
    rows = _table(model, trained, source).read(ids)
    unchanged = RowTable(full.embedding(), Rows.all(0), rows[:0], shrink).read(ids)
    differ = (rows != unchanged).any(axis=1)
    others = _arrays(model)
    del others[_embedding_name(model)]
    write_arrays(folder / WEIGHTS_FILE, others, {"format": "pt"})
    write_arrays(folder / ROWS_FILE, {"ids": ids[differ], "rows": rows[differ]}, {"shrink": repr(shrink)})


def open_task_model(folder: Path) -> TrainedModel:
    """The trained model in a folder of ``write_model``, or of ``write_rows`` that lies in ``seeds/<seed>`` of one.

    Raises ``MissingError`` for neither, ``InputError`` for a model without a head that is known.
    """
    trained = read_trained(folder)
    head = head_of(trained)
    model, rows = load_trained(trained, HEADS[head])
    _keep_exact(model)
    return TrainedModel(model, rows, head, trained.checkpoint)


def head_of(trained: TrainedWeights) -> str:
    """Which of ``HEADS`` a model has; raises ``InputError`` for none."""
    architecture = str((trained.checkpoint.config.get("architectures") or [""])[0])
    head = architecture.rpartition("For")[2]
    if head not in HEADS:
        raise InputError(f"{trained.folder} holds a {architecture or 'model'}, no task model", "make one with finetune")
    return head


def read_trained(folder: Path) -> TrainedWeights:
    """The weights in a folder of ``write_model``, or of ``write_rows`` that lies in ``seeds/<seed>`` of one.

    Raises ``MissingError`` for neither.
    """
    is_whole = (folder / "config.json").is_file()
    if not is_whole and not (folder / WEIGHTS_FILE).is_file():
        raise MissingError(f"{folder} is not a task model: it has no config.json", "make one with finetune")
    checkpoint = Checkpoint.open(folder if is_whole else folder.parent.parent)
    weights = read_weights(checkpoint) if is_whole else read_tensors(folder / WEIGHTS_FILE)
    table = RowTable.of(checkpoint.embedding()) if is_whole else _changed(checkpoint, ArrayFile(folder / ROWS_FILE))
    return TrainedWeights(folder, checkpoint, weights, table)


def load_trained(trained: TrainedWeights, mapping: str) -> tuple["PreTrainedModel", StreamedRows]:
    """The model of transformers' ``mapping``, in evaluation mode, and its view of the whole embedding.

    Raises ``InputError`` if its folder lacks weights.
    """
    checkpoint = trained.checkpoint
    rows = Rows.of((), int(checkpoint.config.get("pad_token_id") or 0), ())
    weights, first = split_head(trained.weights)
    weights[checkpoint.embedding_name] = torch.from_numpy(trained.table.read(rows.ids))
    model, new, _ = load_model(checkpoint, mapping, {"vocab_size": len(rows)}, weights, seed=0)
    if new:
        name = type(model).__name__
        raise InputError(f"{trained.folder} lacks {len(new)} weights of {name}, such as {new[0]}", "train it again")
    load_first(model, first)
    return model, StreamedRows(model, rows, trained.table)


def takes_segments(model: Any) -> bool:
    """Whether a model takes ``token_type_ids``, which separate the two parts of its input."""
    known = "token_type_ids" in inspect.signature(model.forward).parameters
    return known and getattr(model.config, "type_vocab_size", 0) > 1


def load_model(
    checkpoint: Checkpoint, mapping: str, config: Json, weights: dict[str, torch.Tensor], seed: int
) -> tuple["PreTrainedModel", list[str], list[str]]:
    """The model of transformers' ``mapping``, the names of its weights that are new, and of ``weights`` it lacks."""
    import transformers

    with _quiet(), _described(checkpoint):
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
def _described(checkpoint: Checkpoint) -> Iterator[None]:
    """Raise ``InputError`` if transformers makes no model of a ``config.json``."""
    from huggingface_hub.errors import StrictDataclassError

    try:
        yield
    except (StrictDataclassError, ArithmeticError, AttributeError, ImportError, LookupError, OSError, RuntimeError,
            TypeError, ValueError) as error:  # fmt: skip
        raise InputError(
            f"{checkpoint.folder / 'config.json'} does not describe a model ({' '.join(str(error).split())})",
            "fetch the model again",
        ) from None


def _leave_out_code(settings: Any) -> None:
    """Undo what a ``config.json`` says of kernels and quantization: transformers would fetch such code and run it."""
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


def _keep_exact(model: "PreTrainedModel") -> None:
    """Make the last layer an ``exact_linear``."""
    layer: Any = last_linear(model)[1]

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        return exact_linear(inputs, layer.weight, layer.bias)

    layer.forward = forward


def _labels(config: Json) -> Json:
    """Number → label, as a configuration in JSON has it."""
    return {str(number): label for number, label in (config.get("id2label") or {}).items()}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from reporting that a head is new, or that special ids lie beyond a small embedding."""
    import transformers

    logging: Any = transformers.utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def read_weights(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """All weights but those with one entry per row of the vocabulary; raises ``InputError`` for a compiled model."""
    if checkpoint.is_compiled:
        raise InputError(
            f"{checkpoint.folder} is a compiled model, which torch cannot load", "give the model that it was made from"
        )
    vocabulary = {checkpoint.embedding_name, checkpoint.decoder_name, *checkpoint.bias_names}
    return {name: as_tensor(checkpoint[name]) for name in checkpoint.names if name not in vocabulary}


def _arrays(model: "PreTrainedModel") -> dict[str, Array]:
    """All weights by name but the memory's; floating point numbers as float32."""
    weights = model.state_dict()
    return {name: as_array(tensor) for name, tensor in weights.items() if not name.startswith(_MEMORY)}


def _embedding_name(model: "PreTrainedModel") -> str:
    layer = model.get_input_embeddings()
    return next(f"{name}.weight" for name, module in model.named_modules() if module is layer)


def _table(model: "PreTrainedModel", trained: TrainedRows, source: Checkpoint) -> RowTable:
    layer: Any = model.get_input_embeddings()
    values = as_array(layer.weight)
    return RowTable(source.embedding(), trained.rows, values, trained.shrink)


def _changed(full: Checkpoint, file: ArrayFile) -> RowTable:
    return RowTable(full.embedding(), Rows(np.asarray(file["ids"])), file["rows"], float(file.metadata["shrink"]))
