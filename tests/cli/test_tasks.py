"""Tasks that share an encoder on the command line: trained, killed, listed."""

import json
import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.conftest import Run, last_line
from tests.support.small_multitask import task_file
from tests.support.small_tasks import TinyModel, adapted, lines

pytestmark = pytest.mark.usefixtures("one_thread")
ADAPTER = ("--adapter", "pals", "--adapter-size", 34)
QUICK = (*ADAPTER, "--sampling", "anneal", "--batch-size", 8, "--lr", 7e-3, "--epochs", 2, "--steps-per-epoch", 3)
KINDS = {"ner": "ner", "ill.1": "classification", "number": "classification", "qa": "qa"}


def toml(folder: Path, *names: str) -> str:
    """A file of these tasks, with training and test files."""
    tables = [
        f'[[task]]\nname = "{name}"\nkind = "{KINDS[name]}"\nmax-length = 64\n'
        + "".join(f'{part} = "{task_file(folder, name, part).name}"\n' for part in ("train", "test"))
        for name in names
    ]
    path = folder / f"{'-'.join(names)}.toml"
    path.write_text("\n".join(tables))
    return path.name


@pytest.fixture
def shared(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> Path:
    """A folder with two tasks."""
    run_alone("finetune", "--tasks", toml(tmp_path, "ner", "ill.1"), "-m", adapted(tiny_model), *QUICK, "-o", "many")
    return tmp_path / "many"


@pytest.mark.slow
def test_trained_tasks_are_counted_and_listed(run_alone: Run, shared: Path, tmp_path: Path) -> None:
    command = ["finetune", "--tasks", toml(tmp_path, "ner", "ill.1"), "-m", tmp_path / "adapted", *QUICK]
    counts = json.loads(run_alone(*command, "-o", "many", "--json").stdout)["facts"]["adapter"]
    assert (counts["size"], counts["heads"], counts["layers"], counts["tasks"]) == (34, 2, [1, 2], 2)
    assert counts["weights"] == 2 * 32 * 34 + 2 * 3 * 34 * 34  # projections, and two layers' attention without output
    listed = json.loads(run_alone("tasks", "many", "--json").stdout)["tasks"]
    assert [(task["name"], task["kind"], task["adapter"]) for task in listed] == [
        ("ner", "ner", "pals"), ("ill.1", "classification", "pals"),
    ]  # fmt: skip
    for task in listed:
        file = shared / "tasks" / task["name"] / "weights.safetensors"
        sizes = {name: weights.numel() for name, weights in load_file(file).items()}
        assert counts["parameters"] == sum(size for name, size in sizes.items() if not name.startswith("head."))
        assert (task["weights"], task["bytes"]) == (sum(sizes.values()), file.stat().st_size)
        assert 0 <= task["scores"]["test"]["test"]["mean"] <= 1
    encoder = load_file(shared / "model.safetensors")
    assert counts["base_parameters"] == sum(weights.numel() for weights in encoder.values())
    printed = " ".join(run_alone(*command, "-o", "many").stdout.split())
    assert "finetune: up to date" in printed
    assert f"adapter pals, width 34, 2 heads, layers 1-2: {counts['weights']:,} weights per task" in printed
    assert re.search(r"ner +ner +pals +[\d,]+ +f1 +test \d", run_alone("tasks", "many").stdout)
    message = last_line(run_alone(*command, "-o", "other", "--layers", "3", code=2))
    assert "--layers has layer 3, the model has 2" in message


def test_what_cannot_be(run_alone: Run, shared: Path) -> None:
    assert "nowhere does not exist" in last_line(run_alone("tasks", "nowhere", code=1))
    file = shared / "tasks" / "ner" / "weights.safetensors"
    file.write_bytes(b"broken")
    assert "ner/weights.safetensors is not the file of this model" in last_line(run_alone("tasks", "many", code=1))


@pytest.mark.slow
def test_heads_of_two_layers(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    """Train and predict; the model card names no plain model."""
    model = adapted(tiny_model)
    data = [task_file(tmp_path, "ill.1", part).name for part in ("train", "test")]
    deep = ("--head-layers", 2, "--head-dropout", 0.5)
    alone = ("--task", "classification", "--train", data[0], "--test", data[1], "--epochs", 2, "--lr", 7e-3)
    run_alone("finetune", *alone, "-m", model, "--batch-size", 8, "--max-length", 64, *deep, "-o", "alone")
    weights = load_file(tmp_path / "alone/model.safetensors")
    assert weights["classifier.first.weight"].shape == (32, 32)
    predictions = lines(tmp_path / "alone/seeds/0/predictions.jsonl")
    run_alone("predict", "--model", "alone", "--input", data[1], "--out", "labels.jsonl")
    assert [row["label"] for row in lines(tmp_path / "labels.jsonl")] == [row["label"] for row in predictions]
    card = (tmp_path / "alone/README.md").read_text()
    assert "its head has two layers" in card
    assert "AutoModelFor" not in card
