"""ELECTRA: BERT without a pooler, whose embedding may be narrower than its layers."""

from greenadapt.architectures.architecture import BERT_ATTENTION, Architecture, LayerParts, bert_sizes

ARCHITECTURES = (
    Architecture(
        model_type="electra",
        prefix="electra.",
        decoder="generator_lm_head.weight",
        biases=("generator_lm_head.bias",),
        apply_head=lambda model, states: model.generator_lm_head(model.generator_predictions(states)),
        sizes=bert_sizes("embedding_size"),
        memory=BERT_ATTENTION,
        adapters=LayerParts(),
        has_segments=True,
        tokenizer_class="BertTokenizer",
    ),
)
