"""Attention over the states of another model (memory), as one of transformers' attention functions."""

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
    """The memory of the current forward pass; a copied model has its own."""

    memory: Memory | None = None

    def __deepcopy__(self, _: Any) -> "_Current":
        return _Current()


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
    if hasattr(layers[0].get_submodule(attention.path), "memory_layer"):
        return
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
