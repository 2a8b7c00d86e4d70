"""BERT, and ERNIE, which differs from it by task embeddings that are left at their default."""

from functools import partial

from greenadapt.architectures.architecture import BERT_ATTENTION, Architecture, LayerParts, bert_sizes

_bert = partial(
    Architecture,
    decoder="cls.predictions.decoder.weight",
    biases=("cls.predictions.bias", "cls.predictions.decoder.bias"),
    apply_head=lambda model, states: model.cls(states),
    sizes=bert_sizes(),
    memory=BERT_ATTENTION,
    adapters=LayerParts(),
    has_segments=True,
    tokenizer_class="BertTokenizer",
)

ARCHITECTURES = (
    _bert(model_type="bert", prefix="bert."),
    _bert(model_type="ernie", prefix="ernie."),
)
