"""SentencePiece tokenizers trained on real text, this repository's documentation, and two-layer models for them."""

from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from greenadapt.tokenization.vocabulary import BaseVocabulary
from tests.conftest import DEBERTA, save_tokenizer

DOCS = Path(__file__).parents[2] / "docs"
XLM_R = dict(bos="<s>", cls="<s>", eos="</s>", sep="</s>", pad="<pad>", unk="<unk>", mask="<mask>")
DEBERTA_NAMES = dict(bos="[CLS]", cls="[CLS]", eos="[SEP]", sep="[SEP]", pad="[PAD]", unk="[UNK]", mask="[MASK]")
ALBERT = {**DEBERTA_NAMES, "pad": "<pad>", "unk": "<unk>"}
LAYOUTS = {"XLMRoberta": XLM_R, "DebertaV2": DEBERTA_NAMES, "Albert": ALBERT}
"""Family → names of its special tokens."""


@cache
def real_lines() -> list[str]:
    """English text with code, tables and punctuation."""
    files = sorted(DOCS.glob("*.md")) + sorted(DOCS.glob("guides/*.md"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines() if line.strip()]
    return list(dict.fromkeys(lines))[::4]


@cache
def trained_pieces(kind: str, *specials: str) -> str:
    """The ``tokenizer.json`` of a Unigram or BPE model trained on ``real_lines``."""
    tokenizer = Tokenizer(models.Unigram() if kind == "Unigram" else models.BPE())
    # SentencePiece, too, keeps scripts and punctuation apart in training.
    apart = pre_tokenizers.Punctuation("isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), apart])
    options: dict[str, Any] = {"vocab_size": 500, "special_tokens": list(specials), "show_progress": False}
    trainer = trainers.UnigramTrainer(unk_token=specials[0], **options) if kind == "Unigram" else None
    tokenizer.train_from_iterator(real_lines(), trainer or trainers.BpeTrainer(**options))
    if kind == "BPE":
        tokenizer.model.unk_token = specials[0]
        tokenizer.model.fuse_unk = True
    return tokenizer.to_str()


def sentencepiece_tokenizer(family: str, kind: str = "Unigram") -> Tokenizer:
    """A tokenizer with the normalizer, pre-tokenizer and special tokens that transformers gives a family."""
    names = LAYOUTS[family]
    specials = list(dict.fromkeys(names[role] for role in ("unk", "cls", "pad", "sep")))
    tokenizer = Tokenizer.from_str(trained_pieces(kind, *specials))
    spaced = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    if family == "DebertaV2":
        steps = [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
        tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(spaced[1:])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(spaced)
    if family == "Albert":
        steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD()]
        tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.StripAccents(), normalizers.Lowercase()])
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    tokenizer.add_special_tokens([AddedToken(names["mask"], lstrip=True, special=True, normalized=False)])
    cls, sep = names["cls"], names["sep"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} {sep} $B {sep}" if family == "XLMRoberta" else f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (cls, sep)],
    )
    return tokenizer


def known_words(tokenizer: Tokenizer) -> list[str]:
    """Two words that have a row."""
    words = BaseVocabulary(tokenizer).whole_words
    return [word for word in words if word.isalpha() and len(word) > 1][:2]


def save_sentencepiece(folder: Path, family: str, kind: str = "Unigram") -> Tokenizer:
    """Write the tokenizer's files, and return the tokenizer."""
    tokenizer = sentencepiece_tokenizer(family, kind)
    specials = {f"{role}_token": name for role, name in LAYOUTS[family].items()}
    save_tokenizer(tokenizer, folder, "PreTrainedTokenizerFast", **specials)
    return tokenizer


def sentencepiece_model(folder: Path, family: str) -> Path:
    """Write a two-layer model without a head and its tokenizer; it has seven more rows than tokens."""
    import torch
    import transformers

    tokenizer = save_sentencepiece(folder, family)
    sizes: dict[str, Any] = {
        "vocab_size": tokenizer.get_vocab_size() + 7,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 200,
        "pad_token_id": tokenizer.token_to_id(LAYOUTS[family]["pad"]),
        "initializer_range": 0.1,
    }
    if family == "DebertaV2":
        sizes |= DEBERTA
    if family == "Albert":
        sizes["embedding_size"] = 16
    model_class = getattr(transformers, f"{family}Model")
    torch.manual_seed(0)
    model_class(model_class.config_class(**sizes)).save_pretrained(folder)
    return folder
