"""NomicBERT and GTE: BERT with gated feed-forward parts and keys that are rotated by their position."""

from functools import partial

from greenadapt.architectures.architecture import WORD_EMBEDDINGS, Architecture, LayerAttention, LayerParts, Size

_ATTENTION = LayerAttention(
    "self_attn",
    lambda layer, states: (layer.self_attn.k_proj(states), layer.self_attn.v_proj(states)),
    angles=lambda encoder, layer, states, positions: encoder.rotary_emb(states, positions),
)
_PARTS = LayerParts("post_attention_dropout", "mlp", "post_mlp_dropout", "post_mlp_layernorm")


def _sizes(published: str) -> tuple[Size, ...]:
    """``published`` is the second name of a weight, in published files."""
    return (
        Size("hidden_size", WORD_EMBEDDINGS, axis=1),
        Size("intermediate_size", "layers.0.mlp.down_proj.weight", axis=1),
        Size("intermediate_size", published, axis=1),
    )


_rotary = partial(
    Architecture,
    heads=("TokenClassification", "SequenceClassification", "MaskedLM"),
    memory=_ATTENTION,
    adapters=_PARTS,
    layers="layers",
    has_segments=True,
)

ARCHITECTURES = (
    _rotary(
        model_type="nomic_bert",
        prefix="nomic_bert.",
        decoder="cls.predictions.decoder.weight",
        biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
        apply_head=lambda model, states: model.cls(states),
        sizes=_sizes("encoder.layers.0.mlp.fc2.weight"),
        published_layers="encoder.layers",
        tokenizer_class="BertTokenizer",
    ),
    _rotary(
        model_type="gte",
        prefix="gte.",
        decoder="lm_head.decoder.weight",
        biases=("lm_head.decoder.bias",),
        apply_head=lambda model, states: model.lm_head(states),
        sizes=_sizes("encoder.layer.0.mlp.down_proj.weight"),
        published_layers="encoder.layer",
        has_two_separators=None,
        tokenizer_class="XLMRobertaTokenizer",
    ),
)
