"""RoBERTa, and models that differ from it by their tokenizer."""

from functools import partial

from greenadapt.architectures.architecture import BERT_ATTENTION, Architecture, LayerParts, bert_sizes

_roberta = partial(
    Architecture,
    prefix="roberta.",
    decoder="lm_head.decoder.weight",
    biases=("lm_head.bias", "lm_head.decoder.bias"),
    apply_head=lambda model, states: model.lm_head(states),
    sizes=bert_sizes(),
    has_two_separators=True,
    counts_from_padding=True,
)

ARCHITECTURES = (
    _roberta(
        model_type="roberta",
        memory=BERT_ATTENTION,
        adapters=LayerParts(),
        tokenizer_class="RobertaTokenizer",
    ),
    _roberta(
        model_type="xlm-roberta",
        memory=BERT_ATTENTION,
        adapters=LayerParts(),
        tokenizer_class="XLMRobertaTokenizer",
    ),
    _roberta(
        model_type="camembert",
        memory=BERT_ATTENTION,
        adapters=LayerParts(),
        tokenizer_class="CamembertTokenizer",
    ),
)
