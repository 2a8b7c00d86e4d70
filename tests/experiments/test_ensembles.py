"""The ensemble of G-MAP's table 1 from the kept logits of its members."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy.special import softmax

from experiments.gmap import ensemble_scores
from greenadapt.config import TaskConfig, TrainConfig
from greenadapt.errors import InputError, MissingError
from greenadapt.models.task_folder import TaskFolder
from greenadapt.stages.finetune.compare import finetune
from tests.support.small_tasks import (
    TinyModel,
    adapted,
    lines,
    ner_request,
    qa_file,
    read_json,
    session,
    texts_file,
    texts_request,
)

SEED = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this file lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def runs(folder: Path, tiny_model: TinyModel) -> list[Path]:
    """Classification by an expanded model and by a plain one; trained once for all tests."""
    if not (folder / "plain").is_dir():
        expanded = adapted(tiny_model)
        request = texts_request(folder, expanded, (SEED,))
        finetune(session(folder, "expanded"), request)
        finetune(session(folder, "plain"), replace(request, model=str(expanded.parent / "base")))
    return [folder / "expanded", folder / "plain"]


def logits_in(run: Path) -> dict[str, Any]:
    return load_file(run / "seeds" / str(SEED) / "logits.safetensors")


@pytest.mark.slow
def test_an_ensemble_has_the_mean_probabilities(runs: list[Path]) -> None:
    first, second = map(logits_in, runs)
    shares = softmax(np.stack([(first["base"] + first["expanded"]) / 2, second["base"]]), -1).mean(0)
    test = runs[0].parent / "test.jsonl"
    gold = np.array([row["label"] for row in lines(test)])
    labels = np.array(TaskFolder.open(str(runs[0])).task.labels)
    assert ensemble_scores(runs, SEED, str(test))["accuracy"] == np.mean(labels[shares.argmax(-1)] == gold)


@pytest.mark.slow
def test_the_mean_of_equal_answers_is_the_answer(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Units per context, not one a text."""
    base = adapted(tiny_model).parent / "base"
    train, test = qa_file(tmp_path / "train.json", 8), qa_file(tmp_path / "test.json", 5, 1)
    training = TrainConfig(epochs=1, learning_rate=1e-3)
    request = ner_request(tmp_path, base, train=(str(train),), test=str(test), task=TaskConfig("qa"), training=training)
    run = finetune(session(tmp_path), replace(request, save_logits=True)).folder
    alone = read_json(run / "scores.json")["seeds"][0]["test"]
    scores = ensemble_scores([run, run], 0, str(test))
    assert scores["f1"] == pytest.approx(alone["f1"])
    assert scores.items() <= alone.items()


@pytest.mark.slow
def test_other_examples_and_other_seeds_are_refused(runs: list[Path], tmp_path: Path) -> None:
    test = texts_file(tmp_path / "other.jsonl", 14, 2)
    with pytest.raises(InputError, match=r"was tested on 15 examples, .*other\.jsonl has 14"):
        ensemble_scores(runs, SEED, str(test))
    with pytest.raises(MissingError, match="no seed 7"):
        ensemble_scores(runs, 7, str(test))
