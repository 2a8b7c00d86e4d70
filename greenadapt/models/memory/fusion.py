"""A general model whose states are memory for the trained domain model (G-MAP, arXiv 2212.03613).

Layers read the memory through one of transformers' attention functions. The baseline without memory has one head for
both models, whose logits are added.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, sdpa_mask

from greenadapt.architectures import ARCHITECTURES
from greenadapt.architectures.base import LayerAttention
from greenadapt.config import MemoryConfig, MemoryVariant
from greenadapt.errors import UsageError
from greenadapt.models.memory.choice import MemoryPlan

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "greenadapt_memory"
"""The value of ``model.config._attn_implementation`` if layers may read memory."""
MEMORY_TYPES = tuple(name for name, kind in ARCHITECTURES.items() if not isinstance(kind.memory, str))
"""Architectures whose attention can read memory."""


@dataclass(frozen=True, eq=False)
class Memory:
    """What the layers of a model read in addition to its input, in one forward pass."""

    states: Mapping[int, Tensor]
    """Layer, from 0 → fused states M_f, (b, m, d) of any float dtype, finite in padding too; m need not be the length
    of the input."""
    mask: Tensor | None = None
    """(b, m) bool, true for pieces, false for padding; ``None``: no padding. A row may be all false."""
    variant: MemoryVariant = "memory"
    biases: Mapping[int, Tensor] = field(default_factory=dict)
    """Layer, from 0 → (n_heads,), each head's bias towards memory; variant ``gate`` alone."""


class _Current:
    """The memory of the current forward pass."""

    memory: Memory | None = None


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer with its attention."""

    number: int
    layer: Any
    encoder: Any
    attention: LayerAttention
    current: _Current

    def keys_and_values(self, states: Tensor, d_head: int, *, rotated: bool) -> tuple[Tensor, Tensor]:
        """Keys and values (b, n_heads, m, d_head) of states (b, m, d); keys ``rotated`` if the model rotates keys."""
        states = states.to(next(self.layer.parameters()).dtype)
        keys, values = (
            projected.view(*states.shape[:2], -1, d_head).transpose(1, 2)
            for projected in self.attention.keys_and_values(self.layer, states)
        )
        if self.attention.angles is None or not rotated:
            return keys, values
        positions = torch.arange(states.shape[1], device=states.device)[None]
        cos, sin = (turn[:, None] for turn in self.attention.angles(self.encoder, self.layer, states, positions))
        first, second = keys.chunk(2, -1)
        return (keys * cos + torch.cat([-second, first], -1) * sin).to(keys.dtype), values


def memory_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Self-attention over a layer's input and its memory M_f (arXiv 2212.03613, equations 3 to 8).

    ``query``, ``key`` and ``value`` are (b, n_heads, n, d_head); ``attention_mask`` (b, 1, 1 or n, n) bool, true where
    a key may be seen, or float to be added to the scores, or ``None``; ``options`` has ``dropout`` and ``scaling``
    (1 / √d_head). With the layer's own W^k and W^v, variant ``memory`` is
    softmax(Q [K; M_f W^k]ᵀ / √d_head) [V; M_f W^v]; ``cross`` attends to memory alone, with the layer's own context as
    the query; ``gate`` is (1 - σ(b_h)) · own context + σ(b_h) · that of memory. For a row without memory all three give
    the layer's own context. Returns (b, n, n_heads, d_head), and no weights.
    """
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        attention_mask = attention_mask.to(query.dtype)
    attend = partial(scaled_dot_product_attention, dropout_p=options["dropout"], scale=options["scaling"])
    layer: _Layer | None = getattr(module, "memory_layer", None)
    memory = None if layer is None else layer.current.memory
    states = None if layer is None or memory is None else memory.states.get(layer.number)
    if layer is None or memory is None or states is None or states.shape[1] == 0:
        context = attend(query, key, value, attn_mask=attention_mask)
        return context.transpose(1, 2).contiguous(), None
    is_cross = memory.variant == "cross"  # a context has no position
    memory_key, memory_value = layer.keys_and_values(states, query.shape[-1], rotated=not is_cross)
    if memory.variant == "memory":
        bias = None if layer.attention.bias is None else layer.attention.bias(layer.encoder)
        mask = _joint_mask(attention_mask, memory.mask, key.shape[2], states.shape[1], bias)
        context = attend(query, torch.cat([key, memory_key], 2), torch.cat([value, memory_value], 2), attn_mask=mask)
        return context.transpose(1, 2).contiguous(), None
    plain = attend(query, key, value, attn_mask=attention_mask)
    context = attend(plain if is_cross else query, memory_key, memory_value, attn_mask=_memory_mask(memory.mask))
    if not is_cross:
        share = torch.sigmoid(memory.biases[layer.number])[:, None, None].to(plain.dtype)
        context = (1 - share) * plain + share * context
    if memory.mask is not None:
        context = torch.where(memory.mask.any(1)[:, None, None, None], context, plain)
    return context.transpose(1, 2).contiguous(), None


def use_memory_attention(model: "PreTrainedModel") -> None:
    """Make the layers of ``model`` read its keyword argument ``memory``, a ``Memory``; without it nothing changes.

    Replaces no modules and no weights; a saved model is unaffected. Raises ``UsageError`` for an architecture whose
    attention cannot read memory.
    """
    attention = _attention_of(model)
    layers: Any = model.base_model.get_submodule(ARCHITECTURES[model.config.model_type].layers)
    from transformers.modeling_utils import AttentionInterface  # slow to import

    if attention.forward is None:
        AttentionInterface.register(NAME, memory_attention)
        AttentionMaskInterface.register(NAME, _key_mask)
        model.set_attn_implementation(NAME)
    current = _Current()
    for number, layer in enumerate(layers):
        module = layer.get_submodule(attention.path)
        module.memory_layer = _Layer(number, layer, model.base_model, attention, current)
        if attention.forward is not None:
            module.forward = partial(attention.forward, module, memory_attention)
    model.register_forward_pre_hook(partial(_set_memory, current), with_kwargs=True)


def _set_memory(
    current: _Current, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Store the argument ``memory``, which not all models pass on to their layers."""
    current.memory = kwargs.pop("memory", None)
    return args, kwargs


def _attention_of(model: "PreTrainedModel") -> LayerAttention:
    """The attention of the layers of ``model``; raises ``UsageError`` if it cannot read memory."""
    config: Any = model.config
    kind = ARCHITECTURES.get(config.model_type)
    attention = "its attention is unknown" if kind is None else kind.memory
    if not isinstance(attention, str):
        if getattr(config, "is_decoder", False):
            attention = "it is a decoder, which must not see what follows"
        elif getattr(config, "position_embedding_type", "absolute") != "absolute":
            attention = "its attention adds a relative position bias, which memory lacks"
    if isinstance(attention, str):
        raise UsageError(
            f"a model of type {config.model_type} cannot use memory: {attention}",
            f"use an encoder of type {', '.join(MEMORY_TYPES)} with absolute positions",
        )
    return attention


def _key_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """The mask of plain attention, (b, 1, 1, n) where the keys are the same for every query, else (b, 1, n, n)."""
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    is_same = kwargs.get("mask_function") is bidirectional_mask_function
    return mask[:, :, :1] if mask is not None and is_same else mask


def _memory_mask(mask: Tensor | None) -> Tensor | None:
    """(b, 1, 1, m); a row without memory attends to all padding, which avoids NaN; its result is not used."""
    return None if mask is None else (mask | ~mask.any(1, keepdim=True))[:, None, None]


def _joint_mask(mask: Tensor | None, memory: Tensor | None, n: int, m: int, bias: Tensor | None) -> Tensor | None:
    """(b, 1 or n_heads, 1 or n, n + m), of the layer's attention ``mask`` and the mask of the ``memory`` (b, m).

    ``bias`` (n_heads,) is added to the memory's part; the attention mask is float then.
    """
    if mask is None and memory is None:
        return None
    if mask is None:
        assert memory is not None
        mask = memory.new_ones(len(memory), 1, 1, n)
    visible = mask.new_ones(len(mask), m, dtype=torch.bool) if memory is None else memory
    if mask.dtype != torch.bool:
        visible = mask.new_zeros(visible.shape).masked_fill(~visible, torch.finfo(mask.dtype).min)
    visible = visible[:, None, None]
    if bias is not None:
        visible = visible + bias[:, None, None].to(visible.dtype)
    return torch.cat([mask, visible.expand(-1, *mask.shape[1:3], -1)], -1)


KEYWORDS = ("memory_ids", "memory_mask", "memory_types")
"""The general model's arguments in a model with memory."""


class GeneralMemory(nn.Module):
    """A general model, and the trained weights that turn its states into memory.

    ``general`` is an encoder without pooler, of L_G layers and width d_G; ``gates`` has a linear map R^{d_G} → R for
    each target of a gated ``plan``; ``project`` is a linear map from d_G to the domain model's width d_D, or ``None``;
    ``biases`` has (n_heads,) for each target under the attention variant ``gate``. A ``frozen`` general model stays in
    evaluation mode and gets no gradients.
    """

    def __init__(self, general: "PreTrainedModel", plan: MemoryPlan, config: MemoryConfig, domain: Any) -> None:
        """``domain`` is the domain model's configuration."""
        super().__init__()
        width, n_targets = general.config.hidden_size, len(plan.targets)
        self.plan = plan
        self.variant = config.attention
        self.frozen = config.frozen
        self.general = general.requires_grad_(not config.frozen)
        self.gates = nn.ModuleList(_linear(width, 1) for _ in range(n_targets * plan.gated))
        self.project = _linear(width, domain.hidden_size) if config.project else None
        n_biases = n_targets * (config.attention == "gate")
        self.biases = nn.ParameterList(torch.zeros(domain.num_attention_heads) for _ in range(n_biases))

    def train(self, mode: bool = True) -> "GeneralMemory":
        """As in torch, except that a frozen general model stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.general.train(False)
        return self

    def general_states(self, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """The states ``plan.states`` for the general model's inputs (b, m), their mask and types: (S, b, m, d_G)."""
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        arguments = {name: value for name, value in inputs.items() if value is not None}
        is_half = self.general.dtype in (torch.float16, torch.bfloat16)  # autocast would only widen its layer norms
        precision = torch.autocast(ids.device.type, enabled=False) if is_half else nullcontext()
        with precision, torch.no_grad() if self.frozen else nullcontext():
            hidden = self.general(**arguments, output_hidden_states=True).hidden_states
            return torch.stack([hidden[state] for state in self.plan.states])

    def forward(
        self, memory_ids: Tensor, memory_mask: Tensor | None = None, memory_types: Tensor | None = None
    ) -> Memory:
        """The memory of the domain model's layers; arguments as of ``general_states``."""
        states = self.general_states(memory_ids, memory_mask, memory_types)
        fused = {}
        for number, target in enumerate(self.plan.targets):
            chosen = states[self.plan.rows(number)]
            fused[target - 1] = self.project_states(fuse(chosen, self.gates[number]) if self.plan.gated else chosen[0])
        biases = {target - 1: bias for target, bias in zip(self.plan.targets, self.biases, strict=False)}
        return Memory(fused, None if memory_mask is None else memory_mask.bool(), self.variant, biases)

    def project_states(self, states: Tensor) -> Tensor:
        """States (b, m, d_G) projected to the domain model's width: (b, m, d_D)."""
        if self.project is None:
            return states
        return self.project(states.to(self.project.weight.dtype))


def fuse(states: Tensor, gate: Any) -> Tensor:
    """Σ_l α_l m_l for each piece, of the states m (S, b, m, d_G): (b, m, d_G), in their dtype.

    α is ``gate_weights`` of the linear layer ``gate``. Equations 9 to 11 of arXiv 2212.03613.
    """
    with torch.autocast(states.device.type, enabled=False):  # which would copy all states to another dtype
        weights = gate_weights(states, gate).to(states.dtype)
        fused: Tensor = (weights.permute(1, 2, 0)[:, :, None] @ states.permute(1, 2, 0, 3)).squeeze(2)
    return fused


def gate_weights(states: Tensor, gate: Any) -> Tensor:
    """α = softmax over the layers of g(m), of the states m (S, b, m, d_G): (S, b, m), float32 or wider."""
    scores = nn.functional.linear(states, gate.weight.to(states.dtype), gate.bias.to(states.dtype)).squeeze(-1)
    return torch.softmax(scores, 0, torch.promote_types(scores.dtype, torch.float32))


def attach_memory(
    model: "PreTrainedModel", general: "PreTrainedModel", config: MemoryConfig, seed: int
) -> GeneralMemory:
    """Use the states of ``general`` as memory of ``model``, which then also takes the arguments ``KEYWORDS``.

    The result is ``model.memory``, on the model's device; ``seed`` initializes the new weights. Raises
    ``UsageError`` if the models or ``config`` do not fit.
    """
    plan = MemoryPlan.of(config, model.config.num_hidden_layers, general.config.num_hidden_layers)
    use_memory_attention(model)
    memory = add_general(model, general, plan, config, seed)
    model.register_forward_pre_hook(_pass_memory, prepend=True, with_kwargs=True)
    return memory


def add_general(
    model: "PreTrainedModel", general: "PreTrainedModel", plan: MemoryPlan, config: MemoryConfig, seed: int
) -> GeneralMemory:
    """Make ``general`` the ``memory`` of ``model``, without changing its forward pass.

    Raises ``UsageError`` if their widths differ without a projection.
    """
    widths = general.config.hidden_size, model.config.hidden_size
    if widths[0] != widths[1] and not config.project:
        raise UsageError(
            f"the general model is {widths[0]} wide and the domain model {widths[1]}",
            "use --memory-project, or models of the same width",
        )
    memory = GeneralMemory(general, plan, config, model.config)
    # Another seed than that of the head, whose numbers would recur; torch reads only the last 32 bits.
    generator = torch.Generator().manual_seed(2**32 - 1 - seed)
    if config.gate_init == "normal":
        gates: Any = memory.gates
        for gate in gates:
            nn.init.normal_(gate.weight, std=0.02, generator=generator)
    if memory.project is not None:  # a standard deviation that keeps the scale of the states
        nn.init.normal_(memory.project.weight, std=widths[0] ** -0.5, generator=generator)
    for learnt in (memory.gates, memory.biases, *filter(None, [memory.project])):
        learnt.to(model.dtype)
    memory.train(model.training)
    model.memory = memory.to(model.device)
    return memory


def _linear(n_in: int, n_out: int) -> nn.Linear:
    """A linear layer of zeros, made without using torch's random numbers."""
    with torch.random.fork_rng(devices=[]):
        layer = nn.Linear(n_in, n_out)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _pass_memory(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = {name: kwargs.pop(name) for name in KEYWORDS if name in kwargs}
    return args, {**kwargs, "memory": model.memory(**arguments)}


_FIRST_PIECE = "ForSequenceClassification"
"""Classes of this name read only the first piece."""


def attach_logits_fusion(
    model: "PreTrainedModel", general: "PreTrainedModel", config: MemoryConfig, seed: int
) -> GeneralMemory:
    """Apply the head of ``model``, and its pooler, to ``general`` too, and add the logits (arXiv 2212.03613).

    ``model`` then also takes the arguments ``KEYWORDS``; its logits are the sum of those for its own last states and
    for those of ``general``. Heads that label pieces need inputs of one length. The result is ``model.memory``.
    Raises ``UsageError`` if the models or ``config`` do not fit.
    """
    if model.config.model_type not in MEMORY_TYPES:
        raise UsageError(
            f"--strategy logits does not support models of type {model.config.model_type}",
            f"use one of type {', '.join(MEMORY_TYPES)}",
        )
    reads_first = type(model).__name__.endswith(_FIRST_PIECE)
    if getattr(model.config, "classifier_pooling", "cls") == "mean" and reads_first:
        raise UsageError(
            "--strategy logits adds logits of the first piece, and the head of this model reads the mean of all",
            "use another strategy",
        )
    plan = MemoryPlan.of(config, model.config.num_hidden_layers, general.config.num_hidden_layers)
    memory = add_general(model, general, plan, config, seed)
    passed: dict[str, Tensor] = {}  # from one hook to the next: not all models pass arguments on to their encoder
    model.register_forward_pre_hook(partial(_read_general, passed), with_kwargs=True)
    model.base_model.register_forward_hook(partial(_stack, reads_first, passed))
    model.register_forward_hook(_add_halves)
    return memory


def _read_general(
    passed: dict[str, Tensor], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Remove the arguments of the general model, and pass its states (b, m, d_D) to ``_stack``."""
    states = model.memory.general_states(*(kwargs.pop(name, None) for name in KEYWORDS))
    passed["states"] = model.memory.project_states(states[0])
    return args, kwargs


def _stack(reads_first: bool, passed: dict[str, Tensor], encoder: Any, args: tuple[Any, ...], output: Any) -> Any:
    """Append the general model's states (b, n, d_D) to the batch of the encoder's output, which becomes (2 b, n, d_D).

    The head then reads both, and ``_add_halves`` adds their logits.
    """
    domain: Tensor = output.last_hidden_state
    general = passed.pop("states").to(domain.dtype)
    if getattr(encoder, "pooler", None) is not None:
        output.pooler_output = torch.cat([output.pooler_output, encoder.pooler(general)])
    if reads_first:
        domain, general = domain[:, :1], general[:, :1]
    output.last_hidden_state = torch.cat([domain, general])
    return output


def _add_halves(model: Any, args: tuple[Any, ...], output: Any) -> Any:
    for name in ("logits", "start_logits", "end_logits"):
        if name in output:
            domain, general = output[name].chunk(2)
            output[name] = domain + general
    return output
