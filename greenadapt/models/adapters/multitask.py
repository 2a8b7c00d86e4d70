"""One encoder that several tasks share, each with an adapter and a head of its own (arXiv 1902.02671)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from greenadapt.config import AdapterConfig
from greenadapt.errors import MissingError
from greenadapt.models.adapters.hooks import AdapterHooks, check_architecture
from greenadapt.models.adapters.kinds import Adapter, LayerCall, draw_weights, make_adapter, own_pooler
from greenadapt.models.adapters.shape import first_setting
from greenadapt.models.heads import ExactLinear, TwoLayerHead
from greenadapt.tasks.base import HeadShape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_TEXT_HEAD = "SequenceClassification"  # the one that reads the pooler's output
TaskOutput = dict[str, Tensor]
"""``logits`` (b, n_outputs), of heads that label pieces (b, m, n_outputs); or ``start_logits`` and ``end_logits``
(b, m)."""


@dataclass(frozen=True)
class TaskHeadSpec:
    """What one task adds to the encoder."""

    head: str
    """``SequenceClassification``, ``TokenClassification`` or ``QuestionAnswering``."""
    n_outputs: int
    """Number of classes; 1 for regression, 2 for the first and last pieces of answers."""
    adapter: AdapterConfig
    shape: HeadShape = field(default_factory=HeadShape)


class TaskPart(nn.Module):
    """The weights of one task alone: ``adapter`` and ``head``, one or two layers from the model's width d; with
    ``own_pooler`` also a ``pooler``, at first a copy of the encoder's.
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
    def drawn(cls, spec: TaskHeadSpec, encoder: "PreTrainedModel", generator: torch.Generator) -> "TaskPart":
        """A part with weights from ``generator``: first those of the head, then those of the adapter.

        They are drawn on the CPU and moved to the encoder's device. Raises ``UsageError`` if the adapter does not
        fit the encoder.
        """
        with torch.random.fork_rng(devices=[]):  # torch's own initialization would use its random numbers
            part = cls(spec, encoder)
        draw_weights(part.head, generator)
        draw_weights(part.adapter, generator)
        if spec.adapter.init == "zero":
            part.adapter.zero()
        return part.to(encoder.device, encoder.dtype).train(encoder.training)

    def forward(self, states: Tensor, pooler: nn.Module | None) -> TaskOutput:
        """The head's output for the adapted states (b, m, d); if it classifies texts, through its own pooler or the
        shared one, or without one for the first piece's state.
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
    """An encoder of transformers with its pooler, and a ``TaskPart`` for each task in ``parts``; see ``part``."""

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
        parts = {task: TaskPart.drawn(spec, encoder, _generator(seed, task)) for task, spec in heads.items()}
        return cls(encoder, parts)

    def share_projections(self) -> None:
        """Let the tasks whose adapters say so have the same V^E and V^D: those of the first of them."""
        adapters = [part.adapter for part in map(self.part, self.tasks) if part.spec.adapter.share_projections]
        for adapter in adapters[1:]:
            adapter.share(adapters[0])

    @property
    def config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    @property
    def pooler(self) -> nn.Module | None:
        """The encoder's pooler, if it has one."""
        pooler: nn.Module | None = getattr(self.encoder, "pooler", None)
        return pooler

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(_task(key) for key in self.parts)

    def freeze(self) -> None:
        """Freeze the encoder, and its memory, if one task's adapter says so.

        A pooler that no task uses is frozen too. Call it when a memory is attached.
        """
        specs = [self.part(task).spec for task in self.tasks]
        if any(spec.adapter.freeze_encoder for spec in specs):
            self.encoder.requires_grad_(False)
        if self.pooler is not None and all(spec.head != _TEXT_HEAD or spec.adapter.own_pooler for spec in specs):
            self.pooler.requires_grad_(False)

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's word embeddings."""
        embeddings: nn.Module = self.encoder.get_input_embeddings()
        return embeddings

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
        **others: Tensor | None,
    ) -> TaskOutput:
        """The output of the head of ``task`` for inputs (b, m), as transformers' heads return it.

        ``others`` has ``inputs_embeds`` if there are no ``input_ids``, and the arguments of an encoder with memory.
        """
        part = self.part(task)
        with self._hooks.use(part.adapter):
            states = self._encoded(input_ids, attention_mask, token_type_ids, others)
            states = part.adapter.on_top(states, self._hooks.calls[-1])
        output: TaskOutput = part(states, self.pooler)
        return output

    def each(
        self,
        tasks: Sequence[str],
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        **memory: Tensor | None,
    ) -> dict[str, TaskOutput]:
        """``forward`` of each of the ``tasks``; layers before the first adapter are computed once for all of them."""
        first = {task: self.n_untouched(task) for task in tasks}
        outputs: dict[str, TaskOutput] = {}
        kept: dict[int, Tensor] = {}
        calls: list[LayerCall] = []
        for task in sorted(
            first, key=first.__getitem__, reverse=True
        ):  # the first one keeps the states that the others need
            part = self.part(task)
            with self._hooks.use(part.adapter, keep=set(first.values())):
                if outputs:
                    states = self._hooks.resume(kept[first[task]], calls, first[task])
                else:
                    states = self._encoded(input_ids, attention_mask, token_type_ids, memory)
                    kept, calls = {self.config.num_hidden_layers: states} | self._hooks.kept, self._hooks.calls
                states = part.adapter.on_top(states, calls[-1])
            outputs[task] = part(states, self.pooler)
        return {task: outputs[task] for task in tasks}

    def n_untouched(self, task: str) -> int:
        """How many of the encoder's first layers the adapter of ``task`` does not change."""
        n_layers: int = self.config.num_hidden_layers
        return min(self.part(task).adapter.layers, default=n_layers)

    def _encoded(
        self, ids: Tensor | None, mask: Tensor | None, types: Tensor | None, others: Mapping[str, Tensor | None]
    ) -> Tensor:
        output: Any = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types, **others)
        states: Tensor = output.last_hidden_state
        return states


def _key(task: str) -> str:
    """The name of a module in ``parts``: torch allows neither dots nor the names of its own attributes."""
    return f"task_{task.replace('.', ':')}"


def _task(key: str) -> str:
    """The task of the part ``key``."""
    return key.removeprefix("task_").replace(":", ".")


def _generator(seed: int, task: str) -> torch.Generator:
    digest = sha256(f"{seed} {task}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4]))  # torch reads no more of it
