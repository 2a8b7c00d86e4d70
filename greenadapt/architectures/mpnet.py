"""MPNet: RoBERTa with a bias for relative positions."""

from collections.abc import Callable
from typing import Any

from greenadapt.architectures.architecture import Architecture, LayerAttention, LayerParts, bert_sizes


def _attend(
    attention: Any,
    function: Callable[..., Any],
    states: Any,
    mask: Any = None,
    position_bias: Any = None,
    output_attentions: bool = False,
) -> tuple[Any]:
    """``MPNetSelfAttention.forward`` with one of transformers' attention functions."""
    query, key, value = (
        layer(states).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
        for layer in (attention.q, attention.k, attention.v)
    )
    context, _ = function(
        attention,
        query,
        key,
        value,
        position_bias if mask is None else position_bias + mask,
        dropout=attention.dropout.p if attention.training else 0.0,
        scaling=attention.attention_head_size**-0.5,
    )
    return (attention.o(context.flatten(2)),)


def _far_bias(encoder: Any) -> Any:
    """The mean of the biases of keys far before and far behind, the last buckets of each half."""
    weight = encoder.encoder.relative_attention_bias.weight
    return (weight[len(weight) // 2 - 1] + weight[-1]) / 2


ARCHITECTURES = (
    Architecture(
        model_type="mpnet",
        prefix="mpnet.",
        decoder="lm_head.decoder.weight",
        biases=("lm_head.bias", "lm_head.decoder.bias"),
        apply_head=lambda model, states: model.lm_head(states),
        sizes=bert_sizes(),
        memory=LayerAttention(
            "attention.attn",
            lambda layer, states: (layer.attention.attn.k(states), layer.attention.attn.v(states)),
            bias=_far_bias,
            forward=_attend,
        ),
        adapters=LayerParts(attention_output="attention.dropout"),
        has_two_separators=True,
        counts_from_padding=True,
        tokenizer_class="MPNetTokenizer",
    ),
)
