"""MPNet: RoBERTa with a bias for relative positions."""

from greenadapt.architectures.architecture import Architecture, bert_sizes

ARCHITECTURES = (
    Architecture(
        model_type="mpnet",
        examples="MPNet",
        prefix="mpnet.",
        decoder="lm_head.decoder.weight",
        biases=("lm_head.bias", "lm_head.decoder.bias"),
        apply_head=lambda model, states: model.lm_head(states),
        sizes=bert_sizes(),
        memory="its attention takes no further arguments and adds a relative position bias, which memory lacks",
        adapters="its layers take a relative position bias, which adapters lack",
        has_two_separators=True,
        counts_from_padding=True,
    ),
)
