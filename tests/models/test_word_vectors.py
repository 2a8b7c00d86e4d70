"""The vectors of words beside a model's own states: looked up, added, trained, saved, compiled."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import svds
from scipy.spatial.distance import pdist
from starlette.testclient import TestClient
from transformers import AutoModelForTokenClassification

import greenadapt
from greenadapt.checkpoints.layout import WORD_VECTORS_FILE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import CompileConfig, ReadingOptions, TaskConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.predictor import PredictionRequest
from greenadapt.models.word_vector_map import attach_word_vectors
from greenadapt.models.word_vectors import WordVectorReader
from greenadapt.progress import Silent
from greenadapt.stages.compile import compile_model
from greenadapt.stages.finetune.compare import finetune
from greenadapt.store.arrays import ArrayFile
from greenadapt.tasks.base import Encoder, Features
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary
from greenadapt.vectors.stacked import DIM, StackedVectors
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import WORDS, Notes
from tests.support.predictions import predict
from tests.support.small_served import HOST, application
from tests.support.small_tasks import (
    NEW,
    TRAIN,
    Json,
    TinyModel,
    adapted,
    lines,
    ner_request,
    qa_file,
    question_lines,
    sentences,
    session,
    texts_request,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def table_of(folder: Path, words: list[str], dim: int = 6) -> StackedVectors:
    matrix = np.random.default_rng(0).normal(size=(len(words), dim)).astype(np.float32)
    vectors = WordVectors(words, np.ones(len(words), np.int64), matrix)
    return StackedVectors.of(vectors, BaseVocabulary(DualTokenizer.load(folder).base), words)


def features_of(encoder: Encoder, texts: list[list[str]], view: str) -> tuple[Features, list[Any]]:
    pieces = [getattr(encoder.tokenizer.encode(words), view) for words in texts]
    singles = [encoder.single(one.ids)[0] for one in pieces]
    ids = np.concatenate(singles)
    return Features(ids, np.zeros_like(ids), np.array([len(one) for one in singles])), pieces


@pytest.mark.parametrize("view", ["base", "expanded"])
def test_each_piece_has_the_vector_of_its_word(tiny_model: TinyModel, view: str) -> None:
    folder = adapted(tiny_model)
    encoder = Encoder.of(Checkpoint(folder))
    known = [*dict.fromkeys(WORDS), *NEW][::2]
    table = table_of(folder, known)
    texts = sentences(20, 0)
    features, pieces = features_of(encoder, texts, view)
    states = WordVectorReader.of(encoder.tokenizer, table).read(features)["word_vectors"]
    expected = np.zeros_like(states)
    for row, (words, one) in enumerate(zip(texts, pieces, strict=True)):
        for position, number in enumerate(one.input_words.tolist(), start=1):
            if words[number] in known:
                expected[row, position] = table.matrix[known.index(words[number])]
    np.testing.assert_array_equal(states, expected)
    assert 0 < (states != 0).any(-1).sum() < len(features.ids)


def test_vectors_are_centred_of_one_length_and_reduced_by_principal_directions(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    words = [f"heart{number}" for number in range(300)]
    draw = np.random.default_rng(1)
    matrix = (draw.normal(size=(300, 200)) @ np.diag(0.98 ** np.arange(200)) + 1).astype(np.float32)
    vocabulary = BaseVocabulary(DualTokenizer.load(folder).base)
    table = StackedVectors.of(WordVectors(words, np.ones(300, np.int64), matrix), vocabulary, words)
    centred = matrix - matrix.mean(0)
    scaled = centred / np.linalg.norm(centred, axis=1, keepdims=True) * np.sqrt(200)
    u, s, _ = svds(scaled.astype(np.float64), k=DIM)
    np.testing.assert_allclose(pdist(table.matrix.astype(np.float64)), pdist(u * s), rtol=3e-3)
    assert table.matrix.dtype == np.float16
    assert len(table.row_of) == 300


def test_only_words_of_the_model_have_a_vector(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = adapted(tiny_model)
    vocabulary, pair = BaseVocabulary(DualTokenizer.load(folder).base), ["heart", "tachycardia"]
    vectors = WordVectors([*pair, "coronavirus"], np.ones(3, np.int64), np.eye(3, dtype=np.float32))
    (heart,) = StackedVectors.of(vectors, vocabulary, ()).pieces.values
    assert vocabulary.tokenizer.id_to_token(int(heart)) == "heart"
    assert len(StackedVectors.of(vectors, vocabulary, pair).pieces) == 2
    table = table_of(folder, ["heart", "心", "virus"])
    assert len(table.pieces) == len(table.matrix) == 2
    table.write(tmp_path / "table")
    read = StackedVectors.open(tmp_path / "table")
    np.testing.assert_array_equal(read.matrix, table.matrix)
    assert read.row_of == table.row_of


def test_the_map_of_the_vectors_is_added_after_the_layer_in_the_middle(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertForTokenClassification", num_hidden_layers=4, num_labels=3, initializer_range=0.3)
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    ids = torch.randint(5, 50, (3, 7), generator=torch.Generator().manual_seed(0))
    vectors = torch.randn(3, 7, 6, generator=torch.Generator().manual_seed(1))
    vectors[1, 2:] = 0
    with torch.no_grad():
        states = model.bert(ids, output_hidden_states=True).hidden_states[2]
        attach_word_vectors(model, 6, seed=0)
        result = model(ids, word_vectors=vectors).logits
        b = 5 * model.memory.weight
        states = states + vectors @ b.T
        for layer in model.bert.encoder.layer[2:]:
            for hook in [*layer._forward_hooks]:
                layer._forward_hooks.pop(hook)
            states = layer(states)[0] if isinstance(layer(states), tuple) else layer(states)
        torch.testing.assert_close(result, model.classifier(states), rtol=1e-5, atol=1e-5)


def predicted(folder: Path, source: Path) -> list[Json]:
    kind: Any = "conll" if source.suffix == ".tsv" else None
    request = PredictionRequest((str(folder),), str(source), kind, reading=ReadingOptions(margin=1))
    return [prediction.row(tags=True) for prediction in predict(request, Silent())]


@pytest.fixture
def tagged(tiny_model: TinyModel, tmp_path: Path) -> Path:
    """A fine-tuned model with word vectors, two seeds."""
    training = replace(TRAIN, word_vectors=True)
    request = ner_request(tmp_path, adapted(tiny_model), training=training, seeds=(0, 1))
    return finetune(session(tmp_path), request).folder


def test_a_trained_model_predicts_alike_elsewhere(tagged: Path, tmp_path: Path) -> None:
    before = [row["tags"] for row in lines(tagged / "seeds" / "0" / "predictions.jsonl")]
    assert any(label != "O" for labels in before for label in labels)
    moved = shutil.copytree(tagged, tmp_path / "moved")
    shutil.rmtree(tmp_path / "ws", ignore_errors=True)
    shutil.rmtree(tagged)
    assert [row["tags"] for row in predicted(moved, tmp_path / "test.tsv")] == before
    AutoModelForTokenClassification.from_pretrained(moved)
    shutil.copyfile(moved / "memory.safetensors", moved / WORD_VECTORS_FILE)
    with pytest.raises(InputError, match=f"{WORD_VECTORS_FILE} is not the file of this model"):
        predicted(moved, tmp_path / "test.tsv")
    (moved / WORD_VECTORS_FILE).unlink()
    with pytest.raises(InputError, match=f"it has no {WORD_VECTORS_FILE}"):
        predicted(moved, tmp_path / "test.tsv")


@pytest.mark.slow
def test_a_compiled_model_reads_the_vectors_too(tagged: Path, tmp_path: Path) -> None:
    compiled = compile_model(session(tmp_path, "compiled"), str(tagged), CompileConfig()).folder
    expected = predicted(tagged, tmp_path / "test.tsv")
    shutil.rmtree(tagged)
    rows = predicted(compiled, tmp_path / "test.tsv")
    assert [row["tags"] for row in rows] == [row["tags"] for row in expected]
    np.testing.assert_allclose([row["score"] for row in rows], [row["score"] for row in expected], rtol=1e-4)


def test_a_server_reads_the_vectors_too(tagged: Path) -> None:
    with TestClient(application(tagged.parent, tagged.name), HOST) as client:
        body = {"texts": ["tachycardia of the heart"]}
        [answer] = client.post("/predict", json=body).json()["predictions"]
    assert answer == greenadapt.load(tagged).predict(body["texts"])[0]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "qa"])
def test_other_tasks_predict_what_training_measured(tiny_model: TinyModel, tmp_path: Path, task: str) -> None:
    model, training = adapted(tiny_model), replace(TRAIN, epochs=1, word_vectors=True)
    if task == "qa":
        train, test = (qa_file(tmp_path / f"{name}.json") for name in ("train", "test"))
        config = TaskConfig("qa", max_length=64)
        request = ner_request(tmp_path, model, train=(str(train),), test=str(test), task=config, training=training)
        source = question_lines(test)
    else:
        request = replace(texts_request(tmp_path, model, (0,)), training=training)
        source = tmp_path / "test.jsonl"
    folder = finetune(session(tmp_path), request).folder
    name = "answer" if task == "qa" else "label"
    measured = [row[name] for row in lines(folder / "seeds" / "0" / "predictions.jsonl")]
    assert [row[name] for row in predicted(folder, source)] == measured


def test_training_goes_on_from_the_weights_that_a_task_model_has_learnt(tagged: Path, tmp_path: Path) -> None:
    training = replace(TRAIN, max_steps=1, learning_rate=1e-9, word_vectors=True)
    again = finetune(session(tmp_path, "again"), ner_request(tmp_path, tagged, training=training)).folder
    notes = Notes()
    without = replace(training, word_vectors=False)
    finetune(replace(session(tmp_path, "without"), progress=notes), ner_request(tmp_path, tagged, training=without))
    assert any(line.endswith("was trained with word vectors: give --word-vectors") for line in notes.warnings)
    first, second = (ArrayFile(folder / "memory.safetensors")["weight"] for folder in (tagged, again))
    np.testing.assert_allclose(first, second, atol=1e-6)
    np.testing.assert_array_equal(*((folder / WORD_VECTORS_FILE).read_bytes() for folder in (tagged, again)))


def test_a_model_without_vectors_is_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    base = adapted(tiny_model).parent / "base"
    request = ner_request(tmp_path, base, training=replace(TRAIN, word_vectors=True))
    with pytest.raises(
        UsageError, match=r"--word-vectors, but .* has none: adapt a model with WordPiece, or leave it out"
    ):
        finetune(session(tmp_path), request)
