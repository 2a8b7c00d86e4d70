"""One encoder that several tasks share, each with its own adapter and head (arXiv 1902.02671).

Hooks on the encoder's modules insert the adapters; without an adapter they do nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from greenadapt.architectures import ARCHITECTURES
from greenadapt.checkpoints.layout import WEIGHTS_FILE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.errors import InputError, MissingError
from greenadapt.models.adapters.kinds import Adapter, LayerCall, draw_weights, first_of, make_adapter, own_pooler
from greenadapt.models.adapters.shape import first_setting, layer_parts, not_adaptable
from greenadapt.models.rows import Rows
from greenadapt.models.task_folder import TaskFolder
from greenadapt.models.weights import (
    ENCODER,
    ExactLinear,
    InferenceModel,
    TwoLayerHead,
    as_array,
    load_model,
    open_task_model,
    read_tensors,
    read_weights,
    refuse_lost,
    shapes_of,
)
from greenadapt.store.arrays import write_arrays
from greenadapt.tasks.base import HeadShape, Task, n_outputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class AdapterHooks:
    """Hooks in the layers of an encoder that apply the active adapter; without one it is the plain encoder."""

    def __init__(self, encoder: "PreTrainedModel") -> None:
        """Put hooks on the modules of ``encoder``, which must pass ``check_architecture``."""
        self._adapter: Adapter | None = None
        self._beside: list[Tensor | None] = []
        self.calls: list[LayerCall] = []
        """The other arguments of each layer, while an adapter is active."""
        kind = ARCHITECTURES[encoder.config.model_type]
        parts = layer_parts(kind.model_type)
        layers: Any = encoder.get_submodule(kind.layers)
        self._n_layers = len(layers)
        for number, layer in enumerate(layers):
            part = layer.get_submodule
            layer.register_forward_pre_hook(partial(self._enter, number), with_kwargs=True)
            if parts.first_norm:
                part(parts.first_norm).register_forward_hook(partial(self._after_norm, number))
            else:
                layer.register_forward_pre_hook(partial(self._read, number))
            part(parts.attention_output).register_forward_hook(partial(self._after_attention, number))
            part(parts.ffn).register_forward_pre_hook(partial(self._enter_ffn, number))
            part(parts.ffn_output).register_forward_hook(partial(self._after_ffn, number))
            if parts.norm:
                part(parts.norm).register_forward_pre_hook(partial(self._before_norm, number))
            layer.register_forward_hook(partial(self._leave, number, not parts.norm))

    @contextmanager
    def use(self, adapter: Adapter) -> Iterator[None]:
        """Inside, the encoder runs with ``adapter``."""
        self._adapter, self.calls = adapter, [LayerCall()] * self._n_layers
        try:
            yield
        finally:
            self._adapter, self._beside, self.calls = None, [], []

    def _at(self, layer: int) -> Adapter | None:
        return self._adapter if self._adapter is not None and layer in self._adapter.layers else None

    def _enter(self, number: int, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._adapter is not None:
            self.calls[number] = LayerCall(args[1:], kwargs)

    def _read(self, number: int, layer: Any, args: tuple[Any, ...]) -> None:
        if (adapter := self._at(number)) is not None:
            self._beside = [adapter.beside_layer(number, args[0], self.calls[number].mask)]

    def _after_norm(self, number: int, norm: Any, args: Any, output: Tensor) -> None:
        self._read(number, norm, (output,))

    def _after_attention(self, number: int, module: Any, args: Any, output: Tensor) -> Tensor:
        adapter = self._at(number)
        return output if adapter is None else adapter.after_attention(number, output)

    def _enter_ffn(self, number: int, module: Any, args: tuple[Any, ...]) -> None:
        if (adapter := self._at(number)) is not None:
            self._beside.append(adapter.beside_ffn(number, args[0], self.calls[number].mask))

    def _after_ffn(self, number: int, module: Any, args: Any, output: Tensor) -> Tensor:
        adapter = self._at(number)
        return output if adapter is None else adapter.after_ffn(number, output)

    def _before_norm(self, number: int, norm: Any, args: tuple[Any, ...]) -> tuple[Tensor] | None:
        return None if self._at(number) is None else (self._add(args[0]),)

    def _leave(self, number: int, is_sum: bool, layer: Any, args: Any, output: Any) -> Any:
        if (adapter := self._at(number)) is None:
            return output
        states = self._add(first_of(output)) if is_sum else first_of(output)
        states = adapter.after_layer(number, states, self.calls[number].mask)
        return (states, *output[1:]) if isinstance(output, tuple) else states

    def _add(self, total: Tensor) -> Tensor:
        for term in self._beside:
            total = total if term is None else total + term
        return total


def check_architecture(encoder: "PreTrainedModel") -> None:
    """Raise ``UsageError`` unless ``encoder`` supports adapters."""
    config: Any = encoder.config
    layer_parts(config.model_type)
    if getattr(config, "is_decoder", False):
        raise not_adaptable(config.model_type, "it is a decoder, which must not see later tokens")
    if chunk := getattr(config, "chunk_size_feed_forward", 0):
        raise not_adaptable(
            config.model_type, f"it uses chunked feed-forward ({chunk} pieces), and adapters need all pieces"
        )
    if getattr(config, "conv_kernel_size", 0):
        raise not_adaptable(config.model_type, "it has a convolution beside its first layer, as DeBERTa v2 XL")


_TEXT_HEAD = "SequenceClassification"  # the one that reads the pooler's output
TaskOutput = dict[str, Tensor]
"""``logits`` (b, n_outputs), of heads that label pieces (b, m, n_outputs); or ``start_logits`` and ``end_logits``
(b, m)."""


@dataclass(frozen=True)
class TaskHeadSpec:
    """The head and the adapter that a task adds to the encoder."""

    head: str
    """``SequenceClassification``, ``TokenClassification`` or ``QuestionAnswering``."""
    n_outputs: int
    """Number of classes; 1 for regression, 2 for the first and last pieces of answers."""
    adapter: AdapterConfig
    shape: HeadShape = field(default_factory=HeadShape)


class TaskPart(nn.Module):
    """The weights of one task: its ``adapter``, its ``head`` of one or two layers, and with ``own_pooler`` a
    ``pooler``, initialized as that of the encoder.
    """

    def __init__(self, spec: TaskHeadSpec, encoder: "PreTrainedModel") -> None:
        super().__init__()
        config: Any = encoder.config
        self.spec = spec
        self.adapter: Adapter = make_adapter(spec.adapter, encoder)
        has_pooler = spec.adapter.own_pooler and spec.head == _TEXT_HEAD
        self.pooler = own_pooler(encoder) if has_pooler else None
        dropout = spec.shape.dropout
        if dropout is None:
            dropout = first_setting(config, "classifier_dropout", "hidden_dropout_prob", "dropout")
        self.dropout = nn.Dropout(0.0 if spec.head == "QuestionAnswering" else dropout)
        width = config.hidden_size
        is_deep = spec.shape.layers == 2
        self.head = TwoLayerHead(width, spec.n_outputs, dropout) if is_deep else ExactLinear(width, spec.n_outputs)

    @classmethod
    def draw(cls, spec: TaskHeadSpec, encoder: "PreTrainedModel", generator: torch.Generator) -> "TaskPart":
        """Draw the weights from ``generator`` on the CPU: first those of the head, then those of the adapter.

        Raises ``UsageError`` if the adapter does not fit the encoder.
        """
        with torch.random.fork_rng(devices=[]):  # the initialization by torch would use its random numbers
            part = cls(spec, encoder)
        draw_weights(part.head, generator)
        draw_weights(part.adapter, generator)
        if spec.adapter.init == "zero":
            part.adapter.zero()
        return part.to(encoder.device, encoder.dtype).train(encoder.training)

    def forward(self, states: Tensor, pooler: nn.Module | None) -> TaskOutput:
        """The output of the head for the adapted states (b, m, d).

        A head that classifies texts reads the output of the task's pooler or of the shared one, or without both the
        state of the first piece.
        """
        if self.spec.head == _TEXT_HEAD:
            pooler = pooler if self.pooler is None else self.pooler
            states = states[:, 0] if pooler is None else pooler(states)
        logits = self.head(self.dropout(states))
        if self.spec.head != "QuestionAnswering":
            return {"logits": logits}
        start, end = logits.split(1, dim=-1)
        return {"start_logits": start.squeeze(-1).contiguous(), "end_logits": end.squeeze(-1).contiguous()}


class MultitaskModel(nn.Module):
    """An encoder of transformers with its pooler, and a ``TaskPart`` per task."""

    def __init__(self, encoder: "PreTrainedModel", parts: Mapping[str, TaskPart]) -> None:
        """``parts`` by task, made for ``encoder``."""
        super().__init__()
        self._hooks = AdapterHooks(encoder)
        self.encoder = encoder
        self.parts = nn.ModuleDict({_key(task): part for task, part in parts.items()})
        self.train(encoder.training)

    @classmethod
    def of(cls, encoder: "PreTrainedModel", heads: Mapping[str, TaskHeadSpec], seed: int) -> "MultitaskModel":
        """New parts for ``encoder``, drawn by ``seed`` and the task's name, independent of the other tasks.

        They are on the encoder's device, in its dtype. All weights are trainable, see ``freeze``. Raises
        ``UsageError`` if encoder and adapters do not fit.
        """
        check_architecture(encoder)
        parts = {task: TaskPart.draw(spec, encoder, _generator(seed, task)) for task, spec in heads.items()}
        return cls(encoder, parts)

    def share_projections(self) -> None:
        """Use the V^E and V^D of the first task with ``share_projections`` for all such tasks."""
        adapters = [part.adapter for part in map(self.part, self.tasks) if part.spec.adapter.share_projections]
        for adapter in adapters[1:]:
            adapter.share(adapters[0])

    @property
    def config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    @property
    def pooler(self) -> Any:
        """The encoder's pooler, ``None`` if it has none."""
        return getattr(self.encoder, "pooler", None)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(_task(key) for key in self.parts)

    def freeze(self) -> None:
        """Freeze the encoder and its memory if the adapter of a task says so, and a pooler that no task uses.

        Call it after attaching a memory.
        """
        specs = [self.part(task).spec for task in self.tasks]
        if any(spec.adapter.freeze_encoder for spec in specs):
            self.encoder.requires_grad_(False)
        if self.pooler is not None and all(spec.head != _TEXT_HEAD or spec.adapter.own_pooler for spec in specs):
            self.pooler.requires_grad_(False)

    def get_input_embeddings(self) -> Any:
        """The encoder's word embeddings."""
        return self.encoder.get_input_embeddings()

    def part(self, task: str) -> TaskPart:
        """The adapter and head of ``task``; raises ``MissingError`` for an unknown one."""
        if _key(task) not in self.parts:
            raise MissingError(f"the model has no task {task}", f"it has {', '.join(self.tasks)}")
        part = self.parts[_key(task)]
        assert isinstance(part, TaskPart)
        return part

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        task: str,
        **arguments: Tensor | None,
    ) -> TaskOutput:
        """The output of the head of ``task`` for inputs (b, m), as transformers' heads return it.

        ``arguments`` has ``inputs_embeds`` if there are no ``input_ids``, and the arguments of an encoder with memory.
        """
        part = self.part(task)
        with self._hooks.use(part.adapter):
            output: Any = self.encoder(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, **arguments
            )
            states = part.adapter.on_top(output.last_hidden_state, self._hooks.calls[-1])
        return part(states, self.pooler)


def _key(task: str) -> str:
    """The name of a module in ``parts``: torch allows neither dots nor the names of attributes."""
    return f"task_{task.replace('.', ':')}"


def _task(key: str) -> str:
    return key.removeprefix("task_").replace(":", ".")


def _generator(seed: int, task: str) -> torch.Generator:
    digest = sha256(f"{seed} {task}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4]))  # torch reads no more of it


def head_spec(task: Task[Any], adapter: AdapterConfig) -> TaskHeadSpec:
    """The head of ``task``, whose labels are known, with its ``adapter``."""
    return TaskHeadSpec(task.head, n_outputs(task), adapter, task.head_shape)


def open_multitask(checkpoint: Checkpoint, heads: Mapping[str, TaskHeadSpec], rows: Rows, seed: int) -> MultitaskModel:
    """The encoder of ``checkpoint``, float32, whose embedding has only ``rows``, with new parts for each of ``heads``.

    In evaluation mode, with shared projections, of which each task has a copy on disk. The parts, and a pooler that the
    checkpoint lacks, are drawn by ``seed``. Never runs code of the folder. Raises ``InputError`` if the checkpoint
    lacks weights of the encoder, and the errors of ``MultitaskModel.of``.
    """
    encoder, new, _ = load_model(checkpoint, ENCODER, read_weights(checkpoint), rows, seed)
    refuse_lost(checkpoint, new)
    model = MultitaskModel.of(encoder, heads, seed).eval()
    model.share_projections()
    return model


def write_part(model: MultitaskModel, name: str, folder: Path) -> None:
    """Write the weights of a task, its adapter and head, float32, into its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: as_array(tensor) for key, tensor in model.part(name).state_dict().items()}
    write_arrays(folder / WEIGHTS_FILE, weights, {"format": "pt"})


def open_tasks(folders: Sequence[TaskFolder]) -> InferenceModel:
    """Open some tasks of a trained model under one seed; reads the weights of no other task.

    Raises ``MissingError`` or ``InputError`` for missing or invalid files.
    """
    opened = open_task_model(folders[0].weights, has_head=False)
    heads, parts = {}, {}
    for folder in folders:
        assert folder.name is not None
        assert folder.adapter is not None
        assert folder.part is not None
        heads[folder.name], parts[folder.name] = head_spec(folder.task, folder.adapter), folder.part
    model = MultitaskModel.of(opened.model, heads, seed=0).eval()
    for name, part in parts.items():
        _read_part(model, name, part)
    first = next(iter(heads))
    return replace(opened, model=model, head=heads[first].head, task=first)


def _read_part(model: MultitaskModel, name: str, folder: Path) -> None:
    file, part = folder / WEIGHTS_FILE, model.part(name)
    if not file.is_file():
        raise MissingError(f"{folder} has no {WEIGHTS_FILE}", "train the task again")
    weights = read_tensors(file)
    if shapes_of(weights) != shapes_of(part.state_dict()):
        raise InputError(f"{file} does not fit the settings of its task beside it", "train the task again")
    part.load_state_dict(weights)
