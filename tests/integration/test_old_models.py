"""BERT as it was published in January 2019, adapted beside the same model of today."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tests.conftest import WORDS, Run, tiny_model_in
from tests.support.references import states

VECTORS = ("--min-count", 3, "--epochs", 1, "--workers", 1)
SETTINGS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size"),
    "initializer_range",
)
"""All that the first release for PyTorch wrote into a configuration."""


def text_file(folder: Path) -> Path:
    """Lines of text with new words."""
    lines = (f"{word} tachycardia of the heart in coronavirus patients {i}" for i, word in enumerate(WORDS * 3))
    (folder / "text.txt").write_text("\n".join(lines), "utf-8")
    return folder / "text.txt"


def old_twin(modern: Path) -> Path:
    """The same model with the names of TensorFlow in a pickle, and with a vocabulary as its only tokenizer."""
    old = modern.parent / "old"
    old.mkdir()
    vocabulary = Tokenizer.from_file(str(modern / "tokenizer.json")).get_vocab()
    (old / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n", "utf-8")
    config = json.loads((modern / "config.json").read_text())
    (old / "config.json").write_text(json.dumps({name: config[name] for name in SETTINGS}))
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in load_file(modern / "model.safetensors").items()
    }
    torch.save(weights, old / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    return old


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_an_old_folder_gives_what_a_new_one_gives(run_alone: Run, tmp_path: Path) -> None:
    text = text_file(tmp_path)
    modern = tiny_model_in(tmp_path, "BertForPreTraining", name="modern", initializer_range=0.1)
    for base in (modern, old_twin(modern)):
        run_alone("adapt", "-c", text, "-m", base, "-o", f"{base.name}-adapted", *VECTORS)
    adapted = [tmp_path / f"{name}-adapted" for name in ("modern", "old")]
    expected, weights = (load_file(folder / "model.safetensors") for folder in adapted)
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], weight) for name, weight in expected.items())
    sentence = "the heart of patient dtype"
    torch.testing.assert_close(states(adapted[1], sentence), states(modern, sentence), rtol=0, atol=0)
    folders = (modern, adapted[1] / "base_tokenizer")
    theirs, ours = (transformers.AutoTokenizer.from_pretrained(folder)("Tachycardia!").input_ids for folder in folders)
    assert ours == theirs


@pytest.mark.slow
def test_a_vocabulary_with_capitals_is_told(run_alone: Run, tmp_path: Path) -> None:
    prepare = ("corpus", "prepare", text_file(tmp_path), "--workers", 1, "-m")
    old = old_twin(tiny_model_in(tmp_path, "BertModel", name="modern"))
    assert "has capitals, but no tokenizer_config.json says do_lower_case" in run_alone(*prepare, old).stderr
    (old / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert "has capitals" not in run_alone(*prepare, old).stderr
