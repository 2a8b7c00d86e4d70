"""``predict --ensemble``, against the kept logits of the test set."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.models.task_folder import TaskFolder
from greenadapt.stages.finetune.train import finetune
from tests.conftest import last_line
from tests.support.small_tasks import TinyModel, adapted, session, texts_request

SEEDS = (3, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this file lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def runs(folder: Path, tiny_model: TinyModel) -> dict[str, Path]:
    """Classification by an expanded model and by a plain one, two seeds each; trained once for all tests."""
    if not (folder / "plain").is_dir():
        expanded = adapted(tiny_model)
        request = texts_request(folder, expanded, SEEDS)
        finetune(session(folder, "expanded"), request)
        plain = replace(request, model=str(expanded.parent / "base"), seeds=(0, 1))
        finetune(session(folder, "plain"), plain)
    return {name: folder / name for name in ("expanded", "plain")}


def by_hand(runs: dict[str, Path]) -> torch.Tensor:
    """(n_models, n, 2): the logits of both models under their first seeds, the expanded one's averaged over views."""
    first = load_file(runs["expanded"] / "seeds" / str(SEEDS[0]) / "logits.safetensors")
    second = load_file(runs["plain"] / "seeds" / "0" / "logits.safetensors")
    return torch.from_numpy(np.stack([(first["base"] + first["expanded"]) / 2, second["base"]])).double()


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["logits", "probabilities"])
def test_the_command_predicts_the_mean(runs: dict[str, Path], rule: str) -> None:
    source, labels = runs["plain"].parent / "test.jsonl", TaskFolder.open(str(runs["plain"])).task.labels
    logits = by_hand(runs)
    means = torch.softmax(logits.mean(0), -1) if rule == "logits" else torch.softmax(logits, -1).mean(0)
    models = [argument for path in runs.values() for argument in ("-m", str(path))]
    result = CliRunner().invoke(app, ["predict", *models, "-i", str(source), "--ensemble", rule])
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["label"] for row in rows] == [labels[i] for i in means.argmax(-1)]
    np.testing.assert_allclose([list(row["probabilities"].values()) for row in rows], means, atol=1e-5)
    usual = CliRunner().invoke(app, ["predict", *models, "-i", str(source)])
    assert (usual.stdout == result.stdout) == (rule == "logits")


def test_an_ensemble_needs_several_models() -> None:
    for rule in ("logits", "probabilities"):
        failed = CliRunner().invoke(app, ["predict", "-m", "a", "--ensemble", rule], input="heart\n")
        assert failed.exit_code == 2
        assert f"--ensemble {rule} needs several models, there is one: give each with" in last_line(failed)
