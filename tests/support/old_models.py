"""Folders of models as old releases of transformers wrote them: a vocabulary, ``pytorch_model.bin``, other names."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

Json = dict[str, Any]
# What BERT's own configuration has, and all that its first release for PyTorch wrote.
_OF_BERT = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size"),
    "initializer_range",
)


def save_vocabulary(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the ``vocab.txt`` of a WordPiece tokenizer, or the files of another kind."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"WordPiece": "vocab.txt"}
    kind = type(tokenizer.model).__name__
    if kind in names:
        tokens = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
        (folder / names[kind]).write_text("".join(f"{token}\n" for token, _ in tokens), "utf-8")
    else:
        tokenizer.model.save(str(folder))


def _special_names(config: Json) -> dict[str, str]:
    roberta = {
        "bos": "<s>",
        "eos": "</s>",
        "unk": "<unk>",
        "sep": "</s>",
        "pad": "<pad>",
        "cls": "<s>",
        "mask": "<mask>",
    }
    bert = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    names = roberta if config["model_type"] == "roberta" else bert
    return {f"{role}_token": name for role, name in names.items()}


def _write(file: Path, content: Json) -> None:
    file.write_text(json.dumps(content))


def as_pytorch_pretrained_bert(config: Json, weights: Json, folder: Path) -> None:
    """January 2019: BERT alone, with the prefix and names of TensorFlow, and with a vocabulary as its only settings."""
    _write(folder / "config.json", {name: config[name] for name in _OF_BERT})
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {}
    for name, weight in weights.items():
        end = next((end for end in ends if name.endswith(end)), "")
        old[name.removesuffix(end) + ends.get(end, "")] = weight
    torch.save(old, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def as_transformers_4(config: Json, weights: Json, folder: Path) -> None:
    """2021: zip archives, here two shards, and settings with everything that the tokenizer was called with."""
    model_settings = {name: value for name, value in config.items() if name != "dtype"}
    _write(folder / "config.json", {**model_settings, "torch_dtype": "float32", "transformers_version": "4.9.0"})
    names = _special_names(config)
    _write(folder / "special_tokens_map.json", names)
    settings = {"strip_accents": None, "tokenize_chinese_chars": True, "tokenizer_class": _class_of(config)}
    name_or_path = {"special_tokens_map_file": None, "name_or_path": "runs/one", "do_basic_tokenize": True}
    _write(folder / "tokenizer_config.json", {**names, **settings, **name_or_path, **_lowercase(config)})
    weights = _with_positions(weights, config)
    shard_of = {name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, name in enumerate(weights)}
    for shard in set(shard_of.values()):
        torch.save({name: weight for name, weight in weights.items() if shard_of[name] == shard}, folder / shard)
    _write(folder / "pytorch_model.bin.index.json", {"metadata": {}, "weight_map": shard_of})


def _lowercase(config: Json) -> Json:
    return {"do_lower_case": True} if config["model_type"] == "bert" else {}


def _class_of(config: Json) -> str:
    return {"bert": "BertTokenizer", "roberta": "RobertaTokenizer"}[config["model_type"]]


def _with_positions(weights: Json, config: Json) -> Json:
    """Models with a head have the encoder's prefix."""
    prefix = f"{config['model_type']}." if any(name.startswith(config["model_type"]) for name in weights) else ""
    return {f"{prefix}embeddings.position_ids": torch.arange(config["max_position_embeddings"])[None], **weights}


LAYOUTS: dict[str, Callable[[Json, Json, Path], None]] = {
    "pytorch-pretrained-bert": as_pytorch_pretrained_bert,
    "transformers 4": as_transformers_4,
}


def old_twin(modern: Path, folder: Path, layout: str) -> Path:
    """The model of ``modern``, a folder with ``tokenizer.json`` and safetensors, in an old ``layout``.

    ``modern`` gets the tokenizer that transformers makes of the same vocabulary.
    """
    save_vocabulary(Tokenizer.from_file(str(modern / "tokenizer.json")), folder)
    config = json.loads((modern / "config.json").read_text())
    LAYOUTS[layout](config, load_file(modern / "model.safetensors"), folder)
    copy = folder.parent / f"{folder.name}-tokenizer"
    shutil.copytree(folder, copy)
    _write(copy / "config.json", config)  # without its type transformers would guess by the folder's name
    for file in copy.glob("pytorch_model*"):
        file.unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (modern / name).unlink()
    transformers.AutoTokenizer.from_pretrained(copy).save_pretrained(modern)
    shutil.rmtree(copy)
    return folder
