"""Sentence vectors: those of sentence-transformers and of transformers in one tokenization, and the mean of both."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import greenadapt
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError
from greenadapt.models.weights import open_encoder
from greenadapt.storage.arrays import Array
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from tests.support.sentence_models import describe_sentences
from tests.support.small_inputs import ROUNDING
from tests.support.small_tasks import NEW, TinyModel, adapted, expand, facts_file, sentences

PLAIN = [" ".join(words) for words in sentences(6, 0)] + ["the heart rate of a patient", ""]
TEXTS = [*PLAIN, f"{NEW[0]} in a patient with {NEW[1]}", " ".join(NEW * 4)]
NO_SENTENCE_TRANSFORMERS = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None,
    reason="SENTENCE-TRANSFORMERS IS NOT INSTALLED: vectors are not compared with its own",
)


def by_hand(folder: Path, texts: list[str], view: str) -> Array:
    """The mean over all pieces' states, text by text."""
    checkpoint = Checkpoint.open(folder)
    model: Any = open_encoder(checkpoint, checkpoint.n_rows)
    tokenizer = DualTokenizer.of_model(folder, checkpoint.n_rows)
    special, vectors = tokenizer.special, []
    for text in texts:
        pieces = getattr(tokenizer.encode(text), view).ids.tolist()
        ids = torch.tensor([[special.cls, *pieces, special.sep]])
        with torch.inference_mode():
            vectors.append(model(input_ids=ids).last_hidden_state[0].mean(dim=0).numpy())
    return np.stack(vectors)


def test_without_files_for_sentences_it_is_the_mean_over_pieces_of_each_view(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    facts_file(folder)
    model = greenadapt.load(folder)
    assert isinstance(model, greenadapt.AdaptedModel)
    base, expanded = (by_hand(folder, TEXTS, view) for view in ("base", "expanded"))
    assert_allclose(model.encode(TEXTS, view="base"), base, atol=ROUNDING)
    assert_allclose(model.encode(TEXTS, view="expanded"), expanded, atol=ROUNDING)
    assert_allclose(model.encode(iter(TEXTS), batch_size=1), (base + expanded) / 2, atol=ROUNDING)
    assert abs(base - expanded).max() > 1e-3
    assert model.encode(TEXTS).dtype == np.float32
    assert model.encode([]).shape[0] == 0


def test_one_text_is_one_vector_and_texts_without_added_words_go_through_once(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from greenadapt.models.sentence_vectors import SentenceModel

    seen: list[int] = []
    forward = SentenceModel.forward

    def counted(self: Any, input_ids: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        seen.append(len(input_ids))
        return forward(self, input_ids, *arguments, **named)

    monkeypatch.setattr(SentenceModel, "forward", counted)
    model = greenadapt.AdaptedModel(adapted(tiny_model))
    vectors = model.encode(PLAIN)
    added = sum(any(word in text.split() for word in NEW) for text in PLAIN)
    assert 0 < added < len(PLAIN)
    assert sum(seen) == len(PLAIN) + added
    assert_allclose(model.encode(PLAIN[0]), vectors[0], atol=ROUNDING)
    assert model.encode(PLAIN[0]).ndim == 1


def test_an_item_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="item 1 is of type int"):
        greenadapt.EncoderModel("nowhere").encode(["a", 1])  # type: ignore[list-item]


@NO_SENTENCE_TRANSFORMERS
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "pooling"),
    [
        (("Pooling", "Normalize"), {}),
        (("Pooling",), {"pooling_mode_cls_token": True}),
        (("Pooling", "Dense"), {"pooling_mode_max_tokens": True}),
        (("Pooling",), {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}),
        (("Pooling", "Normalize"), {"pooling_mode": "mean_sqrt_len_tokens"}),
        (("Pooling",), {"pooling_mode": "weightedmean"}),
        (("Pooling",), {"pooling_mode": "lasttoken"}),
    ],
)
def test_each_view_is_what_sentence_transformers_computes(
    tiny_model: TinyModel, kinds: tuple[str, ...], pooling: dict[str, Any]
) -> None:
    from sentence_transformers import SentenceTransformer

    base = describe_sentences(tiny_model(name="base", initializer_range=0.1), *kinds, **pooling)
    folder = expand(base, base.parent / "adapted")
    model = greenadapt.AdaptedModel(folder)
    theirs = {
        "base": SentenceTransformer(str(base), device="cpu").encode(TEXTS),
        "expanded": SentenceTransformer(str(folder), device="cpu").encode(TEXTS),
    }
    for view, vectors in theirs.items():
        assert_allclose(model.encode(TEXTS, view=view), vectors, atol=1e-5)  # type: ignore[arg-type]
    mean = (theirs["base"] + theirs["expanded"]) / 2
    if "Normalize" in kinds:
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    assert_allclose(model.encode(TEXTS), mean, atol=1e-5)
    combined = model.to_sentence_transformers(device="cpu")
    assert_allclose(combined.encode(TEXTS, batch_size=3), mean, atol=1e-5)


def test_old_dense_layers_are_read_and_become_safetensors(tiny_model: TinyModel) -> None:
    new = describe_sentences(tiny_model(name="new", initializer_range=0.1), "Pooling", "Dense")
    old = describe_sentences(tiny_model(name="old", initializer_range=0.1), "Pooling", "Dense", is_old=True)
    expected = greenadapt.EncoderModel(new).encode(TEXTS)
    np.testing.assert_array_equal(greenadapt.EncoderModel(old).encode(TEXTS), expected)
    folder = expand(old, old.parent / "adapted")
    assert not (folder / "2_Dense" / "pytorch_model.bin").exists()
    assert_allclose(greenadapt.AdaptedModel(folder).encode(TEXTS, view="base"), expected, atol=ROUNDING)


def test_settings_that_make_models_return_tuples(tiny_model: TinyModel) -> None:
    folder = tiny_model(initializer_range=0.1)
    expected = greenadapt.EncoderModel(folder).encode(TEXTS)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "return_dict": False}))
    np.testing.assert_array_equal(greenadapt.EncoderModel(folder).encode(TEXTS), expected)


@NO_SENTENCE_TRANSFORMERS
@pytest.mark.slow
def test_a_model_with_both_views_is_saved_and_loaded_by_either_library(tiny_model: TinyModel, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    base = describe_sentences(tiny_model(name="base", initializer_range=0.1), "Pooling", "Normalize")
    model = greenadapt.AdaptedModel(expand(base, base.parent / "adapted"))
    saved = tmp_path / "saved"
    model.to_sentence_transformers(device="cpu").save_pretrained(str(saved))
    expected = model.encode(TEXTS)
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(saved), device="cpu")  # which would import greenadapt
    again = SentenceTransformer(str(saved), device="cpu", trust_remote_code=True)
    assert_allclose(again.encode(TEXTS), expected, atol=1e-5)
    assert not [*saved.rglob("*.py")]
    assert_allclose(greenadapt.load(saved).encode(TEXTS), expected, atol=1e-5)  # type: ignore[union-attr]
