"""Generative language models, to which words can be added but nothing else."""

from functools import partial

from greenadapt.architectures.base import CAUSAL, SEQ2SEQ, Architecture, Size

_EMBEDDING = "embed_tokens.weight"

_generative = partial(
    Architecture,
    decoder="lm_head.weight",
    biases=(),
    apply_head=lambda model, states: model.lm_head(states),
)
_causal = partial(
    _generative,
    heads=(CAUSAL,),
    memory="it is a causal language model",
    adapters="it is a causal language model",
)
_llama = partial(
    _causal,
    prefix="model.",
    embedding=_EMBEDDING,
    layers="layers",
    sizes=(Size("hidden_size", _EMBEDDING, axis=1), Size("intermediate_size", "layers.0.mlp.gate_proj.weight")),
)

GENERATIVE = (
    *(_llama(model_type=name) for name in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text")),
    _causal(
        model_type="gpt2",
        tokenizer_class="GPT2Tokenizer",
        prefix="transformer.",
        embedding="wte.weight",
        layers="h",
        n_layers="n_layer",
        sizes=(Size("n_embd", "wte.weight", axis=1), Size("n_positions", "wpe.weight")),
    ),
    _generative(
        model_type="t5",
        heads=(SEQ2SEQ,),  # other heads also run the decoder, and its tokenizers have no [CLS] and [MASK]
        prefix="",
        embedding="shared.weight",
        embedding_again=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        layers="encoder.block",
        n_layers="num_layers",
        sizes=(
            Size("d_model", "shared.weight", axis=1),
            Size("d_ff", "encoder.block.0.layer.1.DenseReluDense.wo.weight", axis=1),
        ),
        memory="it is an encoder with a decoder",
        adapters="it is an encoder with a decoder",
    ),
)
