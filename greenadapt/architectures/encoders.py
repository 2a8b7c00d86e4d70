"""The encoders that greenadapt supports, by ``model_type``."""

from collections.abc import Callable
from functools import partial
from typing import Any

from greenadapt.architectures.base import (
    BERT_ATTENTION,
    POSITIONS,
    WORD_EMBEDDINGS,
    Architecture,
    LayerAttention,
    LayerParts,
    Size,
    bert_sizes,
)

_ALBERT_FFN = "encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"
_MODERNBERT_EMBEDDING = "embeddings.tok_embeddings.weight"

_bert = partial(
    Architecture,
    decoder="cls.predictions.decoder.weight",
    biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    apply_head=lambda model, states: model.cls(states),
    sizes=bert_sizes(),
    memory=BERT_ATTENTION,
    adapters=LayerParts(),
    has_segments=True,
)
_roberta = partial(
    Architecture,
    prefix="roberta.",
    decoder="lm_head.decoder.weight",
    biases=("lm_head.bias", "lm_head.decoder.bias"),
    apply_head=lambda model, states: model.lm_head(states),
    sizes=bert_sizes(),
    memory=BERT_ATTENTION,
    adapters=LayerParts(),
    has_two_separators=True,
    counts_from_padding=True,
)


_HIDDEN = -1e4  # finite, since rows of padding are masked entirely


def _attend_deberta(
    attention: Any,
    function: Callable[..., Any],
    states: Any,
    mask: Any,
    *_: Any,
    **positions: Any,
) -> tuple[Any, None]:
    """``DisentangledSelfAttention.forward`` with one of transformers' attention functions.

    Memory takes part by content only, without the terms of content and positions.
    """
    (b, n, _), heads = states.shape, attention.num_attention_heads
    query, key, value = (
        attention.transpose_for_scores(layer(states), heads)
        for layer in (attention.query_proj, attention.key_proj, attention.value_proj)
    )
    n_terms = 1 + sum(term in attention.pos_att_type for term in ("c2p", "p2c"))
    visible = mask.bool()
    if attention.relative_attention:
        embeddings = attention.pos_dropout(positions["rel_embeddings"])
        relative = positions["relative_pos"]
        bias = attention.disentangled_attention_bias(query, key, relative, embeddings, n_terms)
        visible = bias.view(b, heads, -1, n).masked_fill(~visible, _HIDDEN)
    context, _ = function(
        attention,
        *(part.view(b, heads, -1, part.shape[-1]) for part in (query, key, value)),
        visible,
        dropout=attention.dropout.p if attention.training else 0.0,
        scaling=(query.shape[-1] * n_terms) ** -0.5,
    )
    return context.flatten(2), None


def _attend_mpnet(
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
    """The mean of the biases of the farthest keys before and after, the last buckets of each half."""
    weight = encoder.encoder.relative_attention_bias.weight
    return (weight[len(weight) // 2 - 1] + weight[-1]) / 2


def _rotary_sizes(published: str) -> tuple[Size, ...]:
    """The sizes; ``published`` is the name of a weight in published files."""
    return (
        Size("hidden_size", WORD_EMBEDDINGS, axis=1),
        Size("intermediate_size", "layers.0.mlp.down_proj.weight", axis=1),
        Size("intermediate_size", published, axis=1),
    )


_rotary = partial(
    Architecture,
    heads=("TokenClassification", "SequenceClassification", "MaskedLM"),
    memory=LayerAttention(
        "self_attn",
        lambda layer, states: (layer.self_attn.k_proj(states), layer.self_attn.v_proj(states)),
        angles=lambda encoder, layer, states, positions: encoder.rotary_emb(states, positions),
    ),
    adapters=LayerParts("post_attention_dropout", "mlp", "post_mlp_dropout", "post_mlp_layernorm"),
    layers="layers",
    has_segments=True,
)


ENCODERS = (
    Architecture(
        model_type="albert",
        prefix="albert.",
        decoder="predictions.decoder.weight",
        biases=("predictions.bias", "predictions.decoder.bias"),
        apply_head=lambda model, states: model.predictions(states),
        sizes=(
            Size("embedding_size", WORD_EMBEDDINGS, axis=1),
            POSITIONS,
            Size("intermediate_size", _ALBERT_FFN),
            Size("hidden_size", _ALBERT_FFN, axis=1),
        ),
        memory="all its layers share their weights",
        adapters="all its layers share their weights",
        layers="encoder.albert_layer_groups",
        n_layers="num_hidden_groups",
        has_segments=True,
    ),
    _bert(model_type="bert", prefix="bert."),
    _bert(model_type="ernie", prefix="ernie."),
    _bert(
        model_type="deberta-v2",
        prefix="deberta.",
        biases=("cls.predictions.bias", "cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
        sizes=bert_sizes()[1:],
        memory=LayerAttention(
            "attention.self",
            lambda layer, states: (layer.attention.self.key_proj(states), layer.attention.self.value_proj(states)),
            forward=_attend_deberta,
        ),
    ),
    Architecture(
        model_type="distilbert",
        prefix="distilbert.",
        decoder="vocab_projector.weight",
        biases=("vocab_projector.bias",),
        apply_head=lambda model, states: model.vocab_projector(
            model.vocab_layer_norm(model.activation(model.vocab_transform(states)))
        ),
        sizes=(
            Size("dim", WORD_EMBEDDINGS, axis=1),
            POSITIONS,
            Size("hidden_dim", "transformer.layer.0.ffn.lin1.weight"),
        ),
        memory=LayerAttention(
            "attention", lambda layer, states: (layer.attention.k_lin(states), layer.attention.v_lin(states))
        ),
        adapters=LayerParts("attention.out_lin", "ffn", "ffn", "output_layer_norm"),
        layers="transformer.layer",
        n_layers="n_layers",
    ),
    _bert(
        model_type="electra",
        prefix="electra.",
        decoder="generator_lm_head.weight",
        biases=("generator_lm_head.bias",),
        apply_head=lambda model, states: model.generator_lm_head(model.generator_predictions(states)),
        sizes=bert_sizes("embedding_size"),
    ),
    Architecture(
        model_type="modernbert",
        prefix="model.",
        embedding=_MODERNBERT_EMBEDDING,
        decoder="decoder.weight",
        biases=("decoder.bias",),
        apply_head=lambda model, states: model.decoder(model.head(states)),
        sizes=(
            Size("hidden_size", _MODERNBERT_EMBEDDING, axis=1),
            Size("intermediate_size", "layers.0.mlp.Wi.weight", times=2),
        ),
        memory=LayerAttention(
            "attn",
            # forward does not run the hooks of adapters, which apply to the layer's input.
            lambda layer, states: layer.attn.Wqkv(layer.attn_norm.forward(states)).chunk(3, -1)[1:],
            angles=lambda encoder, layer, states, positions: encoder.rotary_emb(
                states, positions, layer.attention_type
            ),
        ),
        adapters=LayerParts("attn.out_drop", "mlp", "mlp", norm="", first_norm="attn_norm"),
        layers="layers",
        final_norm="final_norm",
    ),
    _roberta(
        model_type="mpnet",
        prefix="mpnet.",
        memory=LayerAttention(
            "attention.attn",
            lambda layer, states: (layer.attention.attn.k(states), layer.attention.attn.v(states)),
            bias=_far_bias,
            forward=_attend_mpnet,
        ),
        adapters=LayerParts(attention_output="attention.dropout"),
    ),
    _roberta(model_type="roberta"),
    _roberta(model_type="xlm-roberta"),
    _roberta(model_type="camembert"),
    _rotary(
        model_type="nomic_bert",
        prefix="nomic_bert.",
        decoder="cls.predictions.decoder.weight",
        biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
        apply_head=lambda model, states: model.cls(states),
        sizes=_rotary_sizes("encoder.layers.0.mlp.fc2.weight"),
        published_layers="encoder.layers",
    ),
    _rotary(
        model_type="gte",
        prefix="gte.",
        decoder="lm_head.decoder.weight",
        biases=("lm_head.decoder.bias",),
        apply_head=lambda model, states: model.lm_head(states),
        sizes=_rotary_sizes("encoder.layer.0.mlp.down_proj.weight"),
        published_layers="encoder.layer",
        has_two_separators=None,
    ),
)
