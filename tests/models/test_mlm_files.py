from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.writer import write_expanded
from greenadapt.models.mlm import OpenedMaskedLM, open_masked_lm, write_masked_lm
from greenadapt.models.rows import Rows
from tests.support.small_tasks import EVERY_FAMILY, TinyModel

pytestmark = pytest.mark.usefixtures("one_thread")
N_ADDED = 40


def with_rows(folder: Path, target: Path) -> Checkpoint:
    """The model of a folder with random rows below its own."""
    source = Checkpoint(folder)
    rows = np.random.default_rng(0).normal(scale=0.1, size=(N_ADDED, source.dim)).astype(np.float32)
    write_expanded(source, rows, target)
    return Checkpoint(target)


def opened_with(checkpoint: Checkpoint, held: list[int]) -> OpenedMaskedLM:
    """All old rows and the ``held`` added ones."""
    n_old = checkpoint.n_rows - N_ADDED
    return open_masked_lm(checkpoint, Rows(np.append(np.arange(n_old), n_old + np.array(held, np.int64))), n_old, 0)


def loaded(folder: Path) -> tuple[Any, dict[str, Any]]:
    model, info = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    return model.eval(), info


@pytest.mark.parametrize("architecture", EVERY_FAMILY)
def test_what_is_written_untouched_is_the_model_that_was_opened(
    tiny_model: TinyModel, tmp_path: Path, architecture: str
) -> None:
    config = {"decoder_bias": True} if architecture == "ModernBert" else {}
    checkpoint = with_rows(tiny_model(f"{architecture}ForMaskedLM", **config), tmp_path / "adapted")
    opened = opened_with(checkpoint, [3, 7])
    assert not opened.has_new_head
    assert opened.left_out == ()
    write_masked_lm(opened, 1.0, tmp_path / "out")
    theirs, ours = load_file(tmp_path / "adapted" / "model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    model, info = loaded(tmp_path / "out")
    if checkpoint.architecture.published_layers:  # whose weights transformers renames when it loads them
        theirs, ours = loaded(tmp_path / "adapted")[0].state_dict(), model.state_dict()
    assert {name: array.shape for name, array in ours.items()} == {name: array.shape for name, array in theirs.items()}
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(model).__name__ == f"{architecture}ForMaskedLM"
    assert model.config.vocab_size == checkpoint.n_rows
    assert Checkpoint(tmp_path / "out").n_rows == checkpoint.n_rows


def test_trained_weights_come_back_in_plain_transformers(tiny_model: TinyModel, tmp_path: Path) -> None:
    checkpoint = with_rows(tiny_model("BertForMaskedLM"), tmp_path / "adapted")
    n_old = checkpoint.n_rows - N_ADDED
    opened = opened_with(checkpoint, [3, 7])
    with torch.no_grad():
        for weight in opened.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())) * 0.05)
    write_masked_lm(opened, 0.5, tmp_path / "out")
    model, _ = loaded(tmp_path / "out")
    ids = torch.tensor([[2, 50, 60, 70, 3]])
    with torch.no_grad():
        logits = opened.model.eval()(torch.arange(5), input_ids=ids)["logits"]
        theirs = model(input_ids=ids).logits[0]
        added = opened.model.eval()(torch.arange(2), input_ids=torch.tensor([[n_old, n_old + 1]]))["logits"]
        plain = model(input_ids=torch.tensor([[n_old + 3, n_old + 7]])).logits[0]
    torch.testing.assert_close(theirs[:, :n_old], logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(plain[:, :n_old], added, atol=1e-5, rtol=1e-5)
    # Rows that the model did not hold shrank as decay would have it; a bias never favours an added word.
    rows, before = model.get_input_embeddings().weight.detach().numpy(), checkpoint.embedding()
    np.testing.assert_allclose(rows[n_old], before[n_old] * 0.5)
    bias = model.cls.predictions.bias.detach()
    assert (bias[n_old:] == bias[:n_old].min()).all()


def test_a_decoder_of_its_own_has_zeros_for_added_words(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("BertForMaskedLM", tie_word_embeddings=False)
    checkpoint = with_rows(folder, tmp_path / "adapted")
    assert checkpoint.decoder_name is not None
    write_masked_lm(opened_with(checkpoint, [1]), 1.0, tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")["cls.predictions.decoder.weight"]
    np.testing.assert_array_equal(written, checkpoint["cls.predictions.decoder.weight"])
    assert not written[-N_ADDED:].any()


def test_a_head_that_is_not_there_is_drawn_as_transformers_does(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("BertModel")
    checkpoint = Checkpoint(folder)
    rows = Rows.all(checkpoint.n_rows)
    opened = [open_masked_lm(checkpoint, rows, len(rows), seed) for seed in (5, 5, 6)]
    first = opened[0]
    assert first.has_new_head
    weights = [dict(masked.model.named_parameters()) for masked in opened]
    (name,) = [name for name in weights[0] if "dense.weight" in name and not name.startswith("model.bert")]
    dense = weights[0][name]
    assert torch.equal(dense, weights[1][name])
    assert not torch.equal(dense, weights[2][name])
    assert dense.mean().item() == pytest.approx(0, abs=3e-3)
    assert dense.std().item() == pytest.approx(0.02, abs=2e-3)
    assert first.model.decoder.bias is not None
    assert not first.model.decoder.bias.any()
    assert torch.equal(first.model.get_input_embeddings().old, torch.from_numpy(np.array(checkpoint.embedding())))


def test_the_pooler_stays_and_another_head_goes(tiny_model: TinyModel, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tiny_model("BertModel"))
    opened = open_masked_lm(checkpoint, Rows.all(checkpoint.n_rows), checkpoint.n_rows, 0)
    assert sorted(opened.left_out) == ["pooler.dense.bias", "pooler.dense.weight"]
    write_masked_lm(opened, 1.0, tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(written["bert.pooler.dense.weight"], checkpoint["pooler.dense.weight"])
    classifier = Checkpoint(tiny_model("BertForSequenceClassification"))
    opened = open_masked_lm(classifier, Rows.all(classifier.n_rows), classifier.n_rows, 0)
    assert {"classifier.weight", "classifier.bias"} <= set(opened.left_out)
