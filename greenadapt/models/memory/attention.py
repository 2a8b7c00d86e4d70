"""Attention in which the states of another model are memory, as one of transformers' attention functions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from greenadapt.config import MemoryVariant
from greenadapt.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "greenadapt_memory"
"""The value of ``model.config._attn_implementation`` if layers may see memory."""
MEMORY_TYPES = ("bert", "roberta", "xlm-roberta", "electra")
"""Architectures whose attention can see memory."""
_REASONS = {
    "mpnet": "its attention takes no further arguments and adds a relative position bias, which memory lacks",
    "distilbert": "its attention does not know its layer",
    "modernbert": "its attention rotates keys by position, which memory lacks",
}


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


def memory_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Self-attention over a layer's input and its memory M_f (arXiv 2212.03613, equations 3 to 8).

    ``query``, ``key`` and ``value`` are (b, n_heads, n, d_head); ``attention_mask`` (b, 1, 1 or n, n) bool, true where
    a key may be seen, or ``None``; ``options`` has ``dropout``, ``scaling`` (1 / √d_head) and ``memory``. With the
    layer's own W^k and W^v, variant ``memory`` is softmax(Q [K; M_f W^k]ᵀ / √d_head) [V; M_f W^v]; ``cross`` attends to
    memory alone, with the layer's own context as the query; ``gate`` is (1 - σ(b_h)) · own context + σ(b_h) · that of
    memory. A row without memory has its own context in all three. Returns (b, n, n_heads, d_head), and no weights.
    """
    attend = partial(scaled_dot_product_attention, dropout_p=options["dropout"], scale=options["scaling"])
    memory: Memory | None = options.get("memory")
    states = None if memory is None else memory.states.get(module.layer_idx)
    if memory is None or states is None or states.shape[1] == 0:
        context = attend(query, key, value, attn_mask=attention_mask)
        return context.transpose(1, 2).contiguous(), None
    states = states.to(module.key.weight.dtype)
    memory_key, memory_value = (
        layer(states).view(*states.shape[:2], -1, query.shape[-1]).transpose(1, 2)
        for layer in (module.key, module.value)
    )
    if memory.variant == "memory":
        mask = _joint_mask(attention_mask, memory.mask, key.shape[2], states.shape[1])
        context = attend(query, torch.cat([key, memory_key], 2), torch.cat([value, memory_value], 2), attn_mask=mask)
        return context.transpose(1, 2).contiguous(), None
    own = attend(query, key, value, attn_mask=attention_mask)
    is_cross = memory.variant == "cross"
    context = attend(own if is_cross else query, memory_key, memory_value, attn_mask=_memory_mask(memory.mask))
    if not is_cross:
        share = torch.sigmoid(memory.biases[module.layer_idx])[:, None, None].to(own.dtype)
        context = (1 - share) * own + share * context
    if memory.mask is not None:
        context = torch.where(memory.mask.any(1)[:, None, None, None], context, own)
    return context.transpose(1, 2).contiguous(), None


def use_memory_attention(model: "PreTrainedModel") -> None:
    """Let the layers of ``model`` see its keyword argument ``memory``, a ``Memory``; without it nothing changes.

    Replaces neither modules nor weights; a saved model is unaffected. Raises ``UsageError`` for an
    architecture whose attention cannot see memory.
    """
    _check_attention(model)
    from transformers.modeling_utils import AttentionInterface  # slow to import

    AttentionInterface.register(NAME, memory_attention)
    AttentionMaskInterface.register(NAME, _key_mask)
    model.set_attn_implementation(NAME)


def _check_attention(model: "PreTrainedModel") -> None:
    """Raise ``UsageError`` unless the layers of ``model`` can see memory."""
    config: Any = model.config
    reason = None
    if config.model_type not in MEMORY_TYPES:
        reason = _REASONS.get(config.model_type, "its attention is unknown")
    elif getattr(config, "is_decoder", False):
        reason = "it is a decoder, which must not see what follows"
    elif getattr(config, "position_embedding_type", "absolute") != "absolute":
        reason = "its attention adds a relative position bias, which memory lacks"
    if reason is not None:
        raise UsageError(
            f"a model of type {config.model_type} cannot use memory: {reason}",
            f"use an encoder of type {', '.join(MEMORY_TYPES)} with absolute positions",
        )


def _key_mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """The mask of plain attention, (b, 1, 1, n): the keys are the same for every query."""
    mask: Tensor | None = sdpa_mask(*args, **kwargs)
    return None if mask is None else mask[:, :, :1]


def _memory_mask(mask: Tensor | None) -> Tensor | None:
    """(b, 1, 1, m); a row without memory sees all of it, to avoid NaN; its result is not used."""
    return None if mask is None else (mask | ~mask.any(1, keepdim=True))[:, None, None]


def _joint_mask(own: Tensor | None, memory: Tensor | None, n: int, m: int) -> Tensor | None:
    """(b, 1, 1 or n, n + m), of the mask of the layer's own keys and the memory's (b, m)."""
    if own is None and memory is None:
        return None
    if own is None:
        assert memory is not None
        own = memory.new_ones(len(memory), 1, 1, n)
    if own.dtype != torch.bool:
        raise ValueError(f"the attention mask is {own.dtype}, must be (b, n), or bool")
    memory = own.new_ones(len(own), m) if memory is None else memory
    return torch.cat([own, memory[:, None, None].expand(-1, -1, own.shape[2], -1)], -1)
