"""Attention in which the states of another model are memory, as one of transformers' attention functions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import AttentionMaskInterface, bidirectional_mask_function, sdpa_mask

from greenadapt.architectures import ARCHITECTURES
from greenadapt.architectures.base import LayerAttention
from greenadapt.config import MemoryVariant
from greenadapt.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "greenadapt_memory"
"""The value of ``model.config._attn_implementation`` if layers may see memory."""
MEMORY_TYPES = tuple(name for name, one in ARCHITECTURES.items() if not isinstance(one.memory, str))
"""Architectures whose attention can see memory."""


@dataclass(frozen=True, eq=False)
class Memory:
    """What the layers of a model see besides its own input, in one forward pass."""

    states: Mapping[int, Tensor]
    """Layer, from 0 → fused states M_f, (b, m, d) of any float dtype, finite in padding too; m need not be the length
    of the input."""
    mask: Tensor | None = None
    """(b, m) bool, true for pieces, false for padding; ``None``: no padding. A row may be all false."""
    variant: MemoryVariant = "memory"
    biases: Mapping[int, Tensor] = field(default_factory=dict)
    """Layer, from 0 → (n_heads,), each head's bias towards memory; variant ``gate`` alone."""


class _Current:
    """The memory of the latest forward pass; that of a copied model is its own."""

    memory: Memory | None = None

    def __deepcopy__(self, _: Any) -> "_Current":
        return _Current()


@dataclass(frozen=True, eq=False)
class _Place:
    """Which layer an attention is in."""

    number: int
    layer: Any
    encoder: Any
    attention: LayerAttention
    current: _Current

    def keys_and_values(self, states: Tensor, d_head: int, *, rotated: bool) -> tuple[Tensor, Tensor]:
        """Those of states (b, m, d), (b, n_heads, m, d_head) each; keys ``rotated`` by their positions, if any are."""
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
    the query; ``gate`` is (1 - σ(b_h)) · own context + σ(b_h) · that of memory. A row without memory has its own
    context in all three. Returns (b, n, n_heads, d_head), and no weights.
    """
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        attention_mask = attention_mask.to(query.dtype)
    attend = partial(scaled_dot_product_attention, dropout_p=options["dropout"], scale=options["scaling"])
    place: _Place | None = getattr(module, "place", None)
    memory = None if place is None else place.current.memory
    states = None if place is None or memory is None else memory.states.get(place.number)
    if place is None or memory is None or states is None or states.shape[1] == 0:
        context = attend(query, key, value, attn_mask=attention_mask)
        return context.transpose(1, 2).contiguous(), None
    is_cross = memory.variant == "cross"  # a context has no position
    memory_key, memory_value = place.keys_and_values(states, query.shape[-1], rotated=not is_cross)
    if memory.variant == "memory":
        bias = None if place.attention.bias is None else place.attention.bias(place.encoder)
        mask = _joint_mask(attention_mask, memory.mask, key.shape[2], states.shape[1], bias)
        context = attend(query, torch.cat([key, memory_key], 2), torch.cat([value, memory_value], 2), attn_mask=mask)
        return context.transpose(1, 2).contiguous(), None
    own = attend(query, key, value, attn_mask=attention_mask)
    context = attend(own if is_cross else query, memory_key, memory_value, attn_mask=_memory_mask(memory.mask))
    if not is_cross:
        share = torch.sigmoid(memory.biases[place.number])[:, None, None].to(own.dtype)
        context = (1 - share) * own + share * context
    if memory.mask is not None:
        context = torch.where(memory.mask.any(1)[:, None, None, None], context, own)
    return context.transpose(1, 2).contiguous(), None


def use_memory_attention(model: "PreTrainedModel") -> None:
    """Let the layers of ``model`` see its keyword argument ``memory``, a ``Memory``; without it nothing changes.

    Replaces neither modules nor weights, only what some modules call; a saved model is unaffected. Raises
    ``UsageError`` for an architecture whose attention cannot see memory.
    """
    attention = _attention_of(model)
    layers: Any = model.base_model.get_submodule(ARCHITECTURES[model.config.model_type].layers)
    if hasattr(layers[0].get_submodule(attention.path), "place"):
        return
    from transformers.modeling_utils import AttentionInterface  # slow to import

    if attention.forward is None:
        AttentionInterface.register(NAME, memory_attention)
        AttentionMaskInterface.register(NAME, _key_mask)
        model.set_attn_implementation(NAME)
    current = _Current()
    for number, layer in enumerate(layers):
        module = layer.get_submodule(attention.path)
        module.place = _Place(number, layer, model.base_model, attention, current)
        if attention.forward is not None:
            module.forward = partial(attention.forward, module, memory_attention)
    model.register_forward_pre_hook(partial(_set_memory, current), with_kwargs=True)


def _set_memory(
    current: _Current, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Take the argument ``memory``, which not all models pass on to their layers."""
    current.memory = kwargs.pop("memory", None)
    return args, kwargs


def _attention_of(model: "PreTrainedModel") -> LayerAttention:
    """How the layers of ``model`` attend; raises ``UsageError`` if they cannot see memory."""
    config: Any = model.config
    known = ARCHITECTURES.get(config.model_type)
    attention = "its attention is unknown" if known is None else known.memory
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
    """(b, 1, 1, m); a row without memory sees all of it, to avoid NaN; its result is not used."""
    return None if mask is None else (mask | ~mask.any(1, keepdim=True))[:, None, None]


def _joint_mask(own: Tensor | None, memory: Tensor | None, n: int, m: int, bias: Tensor | None = None) -> Tensor | None:
    """(b, 1 or n_heads, 1 or n, n + m), of the mask of the layer's own keys and the memory's (b, m).

    ``bias`` (n_heads,) is added for the memory where the mask of the layer's own keys is float.
    """
    if own is None and memory is None:
        return None
    if own is None:
        assert memory is not None
        own = memory.new_ones(len(memory), 1, 1, n)
    seen = own.new_ones(len(own), m, dtype=torch.bool) if memory is None else memory
    if own.dtype != torch.bool:
        seen = own.new_zeros(seen.shape).masked_fill(~seen, torch.finfo(own.dtype).min)
    seen = seen[:, None, None]
    if bias is not None:
        seen = seen + bias[:, None, None].to(seen.dtype)
    return torch.cat([own, seen.expand(-1, *own.shape[1:3], -1)], -1)
