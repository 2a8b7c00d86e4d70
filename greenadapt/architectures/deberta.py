"""DeBERTa v2 and v3: BERT whose attention knows relative positions."""

from collections.abc import Callable
from typing import Any

from greenadapt.architectures.architecture import Architecture, LayerAttention, LayerParts, bert_sizes

_HIDDEN = -1e4  # finite: pieces of padding see none


def _attend(
    attention: Any,
    function: Callable[..., Any],
    states: Any,
    mask: Any,
    *_: Any,
    **positions: Any,
) -> tuple[Any, None]:
    """``DisentangledSelfAttention.forward`` with one of transformers' attention functions.

    Memory is seen by its content alone, without the terms between content and positions.
    """
    (b, n, _), heads = states.shape, attention.num_attention_heads
    query, key, value = (
        attention.transpose_for_scores(layer(states), heads)
        for layer in (attention.query_proj, attention.key_proj, attention.value_proj)
    )
    n_terms = 1 + sum(term in attention.pos_att_type for term in ("c2p", "p2c"))
    seen = mask.bool()
    if attention.relative_attention:
        embeddings = attention.pos_dropout(positions["rel_embeddings"])
        relative = positions["relative_pos"]
        bias = attention.disentangled_attention_bias(query, key, relative, embeddings, n_terms)
        seen = bias.view(b, heads, -1, n).masked_fill(~seen, _HIDDEN)
    context, _ = function(
        attention,
        *(part.view(b, heads, -1, part.shape[-1]) for part in (query, key, value)),
        seen,
        dropout=attention.dropout.p if attention.training else 0.0,
        scaling=(query.shape[-1] * n_terms) ** -0.5,
    )
    return context.flatten(2), None


ARCHITECTURES = (
    Architecture(
        model_type="deberta-v2",
        prefix="deberta.",
        decoder="cls.predictions.decoder.weight",
        biases=("cls.predictions.bias", "cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
        apply_head=lambda model, states: model.cls(states),
        sizes=bert_sizes()[1:],
        memory=LayerAttention(
            "attention.self",
            lambda layer, states: (layer.attention.self.key_proj(states), layer.attention.self.value_proj(states)),
            forward=_attend,
        ),
        adapters=LayerParts(),
        has_segments=True,
        tokenizer_class="DebertaV2Tokenizer",
    ),
)
