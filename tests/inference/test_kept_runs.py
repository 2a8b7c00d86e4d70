"""Ensembles of kept logits, against prediction with both models."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.config import TaskConfig, TrainConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.kept_runs import KeptRun, score_ensemble
from greenadapt.inference.predictor import PredictRequest
from greenadapt.progress import Silent
from greenadapt.stages.finetune.train import finetune
from tests.conftest import last_line
from tests.support.small_tasks import TinyModel, adapted, lines, ner_request, qa_file, session, texts_file

SEEDS = (3, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this file lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def runs(folder: Path, tiny_model: TinyModel) -> dict[str, Path]:
    """Classification by an expanded model and by a plain one, two seeds each; trained once for all tests."""
    if not (folder / "plain").is_dir():
        texts_file(folder / "train.jsonl", 40, 0)
        texts_file(folder / "test.jsonl", 15, 2)
        expanded = adapted(tiny_model)
        request = ner_request(
            folder,
            expanded,
            train=(str(folder / "train.jsonl"),),
            test=str(folder / "test.jsonl"),
            task=TaskConfig("classification", max_length=64),
            training=TrainConfig(epochs=1, learning_rate=3e-3, batch_size=8),
            seeds=SEEDS,
            save_logits=True,
        )
        finetune(session(folder, "expanded"), request)
        plain = replace(request, model=str(expanded.parent / "base"), seeds=(0, 1))
        finetune(session(folder, "plain"), plain)
    return {name: folder / name for name in ("expanded", "plain")}


def opened(runs: dict[str, Path]) -> list[Any]:
    return [KeptRun.open(path) for path in runs.values()]


def by_hand(runs: dict[str, Path], number: int) -> np.ndarray:
    """(n_models, n, 2): the logits of both models under one of their seeds, the expanded one's averaged over views."""
    first = load_file(runs["expanded"] / "seeds" / str(SEEDS[number]) / "logits.safetensors")
    second = load_file(runs["plain"] / "seeds" / str(number) / "logits.safetensors")
    return np.stack([(first["base"] + first["expanded"]) / 2, second["base"]])


@pytest.mark.slow
def test_each_seed_goes_with_the_other_models(runs: dict[str, Path]) -> None:
    kept = opened(runs)
    examples = kept[0].model.task.read(str(runs["plain"].parent / "test.jsonl"), Silent())
    scored = {rule: score_ensemble(kept, examples, rule) for rule in ("logits", "probabilities")}
    assert [one.seeds for one in scored["logits"]] == [(3, 0), (4, 1)]
    for number in (0, 1):
        each = torch.from_numpy(by_hand(runs, number)).double()
        wanted = {"logits": torch.softmax(each.mean(0), -1), "probabilities": torch.softmax(each, -1).mean(0)}
        for rule, shares in wanted.items():
            one = scored[rule][number]
            labels = [kept[0].model.task.labels[i] for i in shares.argmax(-1)]
            assert [prediction["label"] for prediction in one.predictions] == labels
            found = [list(prediction["probabilities"].values()) for prediction in one.predictions]
            np.testing.assert_allclose(found, shares, atol=1e-6)
            right = [label == example.label for label, example in zip(labels, examples, strict=True)]
            assert one.scores["accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("rule", ["logits", "probabilities"])
def test_the_command_predicts_the_same(runs: dict[str, Path], rule: str) -> None:
    kept, source = opened(runs), runs["plain"].parent / "test.jsonl"
    examples = kept[0].model.task.read(str(source), Silent())
    (expected, _) = score_ensemble(kept, examples, rule)
    models = [argument for path in runs.values() for argument in ("-m", str(path))]
    told = CliRunner().invoke(app, ["predict", *models, "-i", str(source), "--ensemble", rule])
    assert told.exit_code == 0, told.stderr
    for line, prediction in zip(told.stdout.splitlines(), expected.predictions, strict=True):
        row = json.loads(line)
        assert row["label"] == prediction["label"]
        assert row["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-5)
    usual = CliRunner().invoke(app, ["predict", *models, "-i", str(source)])
    assert (usual.stdout == told.stdout) == (rule == "logits")


def test_an_ensemble_needs_several_models(runs: dict[str, Path]) -> None:
    for rule in ("logits", "probabilities"):
        told = CliRunner().invoke(app, ["predict", "-m", str(runs["plain"]), "--ensemble", rule], input="heart\n")
        assert told.exit_code == 2
        assert f"--ensemble {rule} needs several models, there is one: give each with" in last_line(told)
    with pytest.raises(UsageError, match="--ensemble logits needs several models"):
        PredictRequest(("a",), ensemble="logits")


def test_the_pool_is_that_of_the_model(runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["expanded"], tmp_path / "copy")
    file = tmp_path / "copy" / "task.json"
    logits = load_file(tmp_path / "copy" / "seeds" / "3" / "logits.safetensors")
    views: dict[str, Any] = {"base": logits["base"], "expanded": logits["expanded"]}
    views["mean"] = (views["base"] + views["expanded"]) / 2
    assert not np.array_equal(views["base"], views["expanded"])
    for pool, expected in views.items():
        file.write_text(json.dumps({**json.loads(file.read_text()), "pool": pool}))
        np.testing.assert_array_equal(np.concatenate(KeptRun.open(tmp_path / "copy").logits(3)), expected)


def test_answers_of_two_runs(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Units per context, not one a text; the mean of equal models is the model."""
    base = adapted(tiny_model).parent / "base"
    train, test = qa_file(tmp_path / "train.json", 8), qa_file(tmp_path / "test.json", 5, 1)
    training = TrainConfig(epochs=1, learning_rate=1e-3)
    request = ner_request(tmp_path, base, train=(str(train),), test=str(test), task=TaskConfig("qa"), training=training)
    run = KeptRun.open(finetune(session(tmp_path), replace(request, save_logits=True)).folder)
    examples = run.model.task.read(str(test), Silent())
    (once,) = score_ensemble([run, run], examples, "probabilities")
    alone = lines(run.model.folder / "seeds/0/predictions.jsonl")
    assert [one["answer"] for one in once.predictions] == [one["answer"] for one in alone]


def test_what_can_be_no_ensemble(runs: dict[str, Path], tmp_path: Path) -> None:
    kept = opened(runs)
    examples = kept[0].model.task.read(str(runs["plain"].parent / "test.jsonl"), Silent())
    with pytest.raises(InputError, match=r"was tested on 15 examples, here are 14: test it on these"):
        score_ensemble(kept, examples[:-1], "logits")
    with pytest.raises(InputError, match=r"expanded has 2 seeds, .*plain has 1: fine-tune both"):
        score_ensemble([kept[0], replace(kept[1], seeds=(0,))], examples, "logits")
    other = replace(kept[1], model=replace(kept[1].model, task=replace(kept[1].model.task, labels=("ill", "dead"))))
    with pytest.raises(InputError, match=r"expanded has the labels ill, well, .*plain has ill, dead: give models"):
        score_ensemble([kept[0], other], examples, "logits")
    with pytest.raises(MissingError, match=r"is not a fine-tuned model: it has no task.json"):
        KeptRun.open(tmp_path)
    (tmp_path / "task.json").write_text('{"task": "classification"}')
    with pytest.raises(InputError, match=r"task.json has no "):
        KeptRun.open(tmp_path)
    shutil.copyfile(runs["plain"] / "task.json", tmp_path / "task.json")
    (tmp_path / "scores.json").write_text('{"seeds": [{}]}')
    with pytest.raises(InputError, match=r"scores.json has no seeds.0.seed"):
        KeptRun.open(tmp_path)
    with pytest.raises(MissingError, match=r"seeds/7/logits.safetensors is not there: fine-tune it with"):
        replace(kept[0], model=replace(kept[0].model, folder=tmp_path)).logits(7)
