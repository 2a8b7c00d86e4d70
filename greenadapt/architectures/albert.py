"""ALBERT: BERT with one layer that is used again and again, and a narrow embedding."""

from greenadapt.architectures.architecture import POSITIONS, WORD_EMBEDDINGS, Architecture, Size

_FFN = "encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"

ARCHITECTURES = (
    Architecture(
        model_type="albert",
        prefix="albert.",
        decoder="predictions.decoder.weight",
        biases=("predictions.bias", "predictions.decoder.bias"),
        apply_head=lambda model, states: model.predictions(states),
        sizes=(
            Size("embedding_size", WORD_EMBEDDINGS, axis=1),
            POSITIONS,
            Size("intermediate_size", _FFN),
            Size("hidden_size", _FFN, axis=1),
        ),
        memory="it has one layer, which is used again and again",
        adapters="it has one layer, which is used again and again",
        layers="encoder.albert_layer_groups",
        n_layers="num_hidden_groups",
        has_segments=True,
        tokenizer_class="AlbertTokenizer",
    ),
)
