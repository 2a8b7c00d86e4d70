"""DistilBERT: a BERT of half as many layers, without pooler and segments."""

from greenadapt.architectures.architecture import (
    POSITIONS,
    WORD_EMBEDDINGS,
    Architecture,
    LayerAttention,
    LayerParts,
    Size,
)

ARCHITECTURES = (
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
        tokenizer_class="BertTokenizer",
    ),
)
