"""Generative language models of two layers, with tokenizers of their kind trained on real text."""

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.conftest import save_tokenizer
from tests.support.sentencepiece_models import real_lines, trained_pieces

SPECIALS = ("<unk>", "<s>", "</s>")
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DECODERS = {"Llama": "llama-2", "Gemma": "gemma", "Qwen3": "qwen", "GPT2": "gpt-2", "T5": "t5"}
"""Architecture → style of its tokenizer."""


def generative_tokenizer(style: str) -> Tokenizer:
    """One with the normalizer, pre-tokenizer and decoder of ``llama-2``, ``llama``, ``gemma``, ``qwen``, ``gpt-2`` or
    ``t5``.

    ``llama`` is what transformers makes of Llama 2 since its release 5.
    """
    if style == "t5":
        return _unigram()
    if style in ("qwen", "gpt-2"):
        tokenizer = _bytelevel(style)
    else:
        tokenizer = with_byte_fallback(trained_pieces("BPE", *SPECIALS), "<unk>")
    spaces = normalizers.Replace(" ", "▁")
    if style == "llama-2":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    elif style == "llama":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif style == "gemma":
        tokenizer.normalizer = spaces
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    if style not in ("qwen", "gpt-2"):
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence(steps if style == "gemma" else [*steps, decoders.Strip(" ", left=1)])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    return tokenizer


def with_byte_fallback(trained: str, unknown: str) -> Tokenizer:
    """A trained BPE that spells other characters in bytes, without pre-tokenizer."""
    state = json.loads(trained)
    vocabulary = state["model"]["vocab"]
    vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)}
    state["model"] |= {"unk_token": unknown, "fuse_unk": True, "byte_fallback": True}
    state |= {"pre_tokenizer": None, "added_tokens": []}
    return Tokenizer.from_str(json.dumps(state))


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer.from_str(trained_pieces("Unigram", *SPECIALS))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))]
    )
    return tokenizer


def _bytelevel(style: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if style == "qwen":
        tokenizer.normalizer = normalizers.NFC()
        steps = [pre_tokenizers.Split(Regex(_QWEN), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(real_lines(), trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def generative_model(folder: Path, family: str, **config: Any) -> Path:
    """Write a random model and its tokenizer; like published models, it has seven more rows than tokens."""
    import torch
    import transformers

    tokenizer = generative_tokenizer(DECODERS[family])
    names: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    save_tokenizer(tokenizer, folder, "PreTrainedTokenizerFast", **({} if family == "GPT2" else names))
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size() + 7,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 64,
        "max_position_embeddings": 400,
        "bos_token_id": tokenizer.token_to_id("<s>"),
        "eos_token_id": tokenizer.token_to_id("</s>"),
        "pad_token_id": None,
        "initializer_range": 0.1,
    }
    if family == "T5":
        sizes |= {
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 1,
            "pad_token_id": 0,
        }
        del sizes["max_position_embeddings"], sizes["head_dim"], sizes["num_key_value_heads"]
    name = {"GPT2": "GPT2LMHeadModel", "T5": "T5ForConditionalGeneration"}.get(family, f"{family}ForCausalLM")
    model_class: Any = getattr(transformers, name)
    torch.manual_seed(0)
    model_class(model_class.config_class(**{**sizes, **config})).save_pretrained(folder)
    if family == "T5":  # some published files have the embedding three times
        weights = load_file(folder / "model.safetensors")
        again = {f"{part}.embed_tokens.weight": weights["shared.weight"] for part in ("encoder", "decoder")}
        save_file({**weights, **again}, folder / "model.safetensors", {"format": "pt"})
    return folder
