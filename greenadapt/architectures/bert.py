"""BERT, and ERNIE, which differs from it by task embeddings that are left at their default."""

from greenadapt.architectures.architecture import BERT_ATTENTION, Architecture, LayerParts, bert_sizes

_DECODER = "cls.predictions.decoder.weight"
_BIASES = ("cls.predictions.bias", "cls.predictions.decoder.bias")

ARCHITECTURES = (
    Architecture(
        model_type="bert",
        examples="BERT, E5, GTE and BGE in English",
        prefix="bert.",
        decoder=_DECODER,
        biases=_BIASES,
        apply_head=lambda model, states: model.cls(states),
        sizes=bert_sizes(),
        memory=BERT_ATTENTION,
        adapters=LayerParts(),
        has_segments=True,
    ),
    Architecture(
        model_type="ernie",
        examples="ERNIE",
        prefix="ernie.",
        decoder=_DECODER,
        biases=_BIASES,
        apply_head=lambda model, states: model.cls(states),
        sizes=bert_sizes(),
        memory=BERT_ATTENTION,
        adapters=LayerParts(),
        has_segments=True,
    ),
)
