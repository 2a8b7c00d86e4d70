"""ModernBERT: layers that normalize their input, and keys that are rotated by their position."""

from greenadapt.architectures.architecture import Architecture, LayerAttention, LayerParts, Size

_EMBEDDING = "embeddings.tok_embeddings.weight"

ARCHITECTURES = (
    Architecture(
        model_type="modernbert",
        prefix="model.",
        embedding=_EMBEDDING,
        decoder="decoder.weight",
        biases=("decoder.bias",),
        apply_head=lambda model, states: model.decoder(model.head(states)),
        sizes=(
            Size("hidden_size", _EMBEDDING, axis=1),
            Size("intermediate_size", "layers.0.mlp.Wi.weight", times=2),
        ),
        memory=LayerAttention(
            "attn",
            # Without the hooks of adapters, which are for the layer's own input.
            lambda layer, states: layer.attn.Wqkv(layer.attn_norm.forward(states)).chunk(3, -1)[1:],
            angles=lambda encoder, layer, states, positions: encoder.rotary_emb(
                states, positions, layer.attention_type
            ),
        ),
        adapters=LayerParts("attn.out_drop", "mlp", "mlp", norm="", first_norm="attn_norm"),
        layers="layers",
        final_norm="final_norm",
    ),
)
