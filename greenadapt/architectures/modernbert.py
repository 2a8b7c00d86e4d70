"""ModernBERT: layers that normalize their input, and keys that are rotated by their position."""

from greenadapt.architectures.architecture import Architecture, LayerAttention, Size

_EMBEDDING = "embeddings.tok_embeddings.weight"

ARCHITECTURES = (
    Architecture(
        model_type="modernbert",
        examples="ModernBERT",
        prefix="model.",
        embedding=_EMBEDDING,
        decoder="decoder.weight",
        biases=("decoder.bias",),
        apply_head=lambda model, states: model.decoder(model.head(states)),
        sizes=(
            Size("hidden_size", _EMBEDDING, axis=1),
            Size("intermediate_size", "layers.0.mlp.Wi.weight", times=2),
        ),
        memory=LayerAttention("attn", lambda layer, states: layer.attn.Wqkv(layer.attn_norm(states)).chunk(3, -1)[1:]),
        adapters="it has no pooler, which tasks share, and normalizes before its layers, not after them",
        layers="layers",
    ),
)
