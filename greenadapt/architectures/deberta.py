"""DeBERTa v2 and v3: BERT whose attention knows relative positions."""

from greenadapt.architectures.architecture import Architecture, bert_sizes

ARCHITECTURES = (
    Architecture(
        model_type="deberta-v2",
        examples="DeBERTa v2 and v3",
        prefix="deberta.",
        decoder="cls.predictions.decoder.weight",
        biases=("cls.predictions.bias", "cls.predictions.decoder.bias", "lm_predictions.lm_head.bias"),
        apply_head=lambda model, states: model.cls(states),
        sizes=bert_sizes()[1:],
        memory="its attention is unknown",
        adapters="its layers are unknown",
        has_segments=True,
    ),
)
