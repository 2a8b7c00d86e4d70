"""Models as they were published from 2019 to 2022, adapted beside the same models of today."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests.conftest import WORDS, Run, tiny_model_in
from tests.support.old_models import old_twin
from tests.support.references import states

VECTORS = ("--min-count", 3, "--epochs", 1, "--workers", 1)
OLD = [
    ("BertForPreTraining", "pytorch-pretrained-bert"),
    ("RobertaForMaskedLM", "transformers 4"),
]
"""Transformers' class, and the release that wrote it."""


def text_file(folder: Path) -> Path:
    """Lines of text with new words."""
    lines = (f"{word} tachycardia of the heart in coronavirus patients {i}" for i, word in enumerate(WORDS * 3))
    (folder / "text.txt").write_text("\n".join(lines), "utf-8")
    return folder / "text.txt"


@pytest.fixture(params=OLD, ids=lambda old: " ".join(old))
def twins(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A model of today, and the same as an old release wrote it."""
    architecture, layout = request.param
    modern = tiny_model_in(tmp_path, architecture, name="modern", initializer_range=0.1)
    return modern, old_twin(modern, tmp_path / "old", layout)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Those of a folder but for the buffer of positions, which old releases wrote."""
    tensors = load_file(folder / "model.safetensors")
    return {name: weight for name, weight in tensors.items() if not name.endswith("position_ids")}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_an_old_folder_gives_what_a_new_one_gives(run_alone: Run, twins: tuple[Path, Path], tmp_path: Path) -> None:
    text = text_file(tmp_path)
    modern, old = twins
    assert not (old / "tokenizer.json").exists()
    assert not list(old.glob("*.safetensors"))
    for base in twins:
        run_alone("adapt", "-c", text, "-m", base, "-o", f"{base.name}-adapted", *VECTORS)
    expected, weights_of_old = (weights(tmp_path / f"{base.name}-adapted") for base in twins)
    assert weights_of_old.keys() == expected.keys()
    assert all(torch.equal(weights_of_old[name], weight) for name, weight in expected.items())
    for name in ("tokenizer.json", "base_tokenizer/tokenizer.json"):
        files = [tmp_path / f"{base.name}-adapted" / name for base in twins]
        if files[0].is_file():
            assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())
    sentence = "the heart of patient dtype"
    torch.testing.assert_close(states(tmp_path / "old-adapted", sentence), states(modern, sentence), rtol=0, atol=0)
    base = transformers.AutoTokenizer.from_pretrained(tmp_path / "old-adapted" / "base_tokenizer")
    assert (
        base("Tachycardia!").input_ids == transformers.AutoTokenizer.from_pretrained(modern)("Tachycardia!").input_ids
    )


@pytest.mark.slow
def test_a_vocabulary_with_capitals_is_told(run_alone: Run, tmp_path: Path) -> None:
    text = text_file(tmp_path)
    old = old_twin(tiny_model_in(tmp_path, "BertModel", name="modern"), tmp_path / "old", "pytorch-pretrained-bert")
    warning = "vocab.txt of .* has capitals, but no tokenizer_config.json says do_lower_case"
    assert warning.split(".*")[1] in run_alone("corpus", "prepare", text, "-m", old, "--workers", 1).stderr
    (old / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert "has capitals" not in run_alone("corpus", "prepare", text, "-m", old, "--workers", 1).stderr
