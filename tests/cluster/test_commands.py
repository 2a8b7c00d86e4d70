"""Commands that work on the nodes of a Ray cluster, as a user starts them."""

import json
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from greenadapt.store.files import hash_file
from tests.conftest import Run, last_line
from tests.support.small_cluster import ADDRESS, free_port
from tests.support.small_tasks import TinyModel, adapted, lines, ner_file

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]


def content(folder: Path) -> dict[str, object]:
    """What is in each file of a result, but for what it cost and when."""
    content: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "history.jsonl":
            content[str(path.relative_to(folder))] = [{**row, "seconds": 0} for row in lines(path)]
        elif path.is_file() and path.name not in ("manifest.json", "README.md"):
            content[str(path.relative_to(folder))] = hash_file(path)
    return content


def spoil(nodes: Any, folder: Path) -> None:
    """Put a folder where the scores of a seed would be, and end a node as soon as another one is trained."""
    while not (works := [*folder.glob(".ner-base*")]):
        time.sleep(0.02)
    (works[0] / "seeds" / "1" / "scores.json").mkdir(parents=True)
    while not [*folder.rglob(".state.safetensors")]:
        time.sleep(0.05)
    nodes.remove_node(nodes.worker_nodes.copy().pop(), allow_graceful=False)


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_seeds_and_models_train_as_on_one_machine_although_a_node_dies_and_one_fails(
    run_alone: Run, nodes: Any, tiny_model: TinyModel, tmp_path: Path
) -> None:
    ours = adapted(tiny_model)
    for name, n in (("train", 40), ("test", 15)):
        ner_file(tmp_path / f"{name}.tsv", n, n)
    command = ["finetune", "--task", "ner", "-m", ours, "--compare", ours.parent / "base", "--train", "train.tsv"]
    command += ["--test", "test.tsv", "--seeds", "2", "--epochs", "6", "--batch-size", "8", "--learning-rate", "0.007"]
    run_alone(*command, "--out", "alone/run")
    spread = tmp_path / "spread"
    spoiling = threading.Thread(target=spoil, args=(nodes, spread), daemon=True)
    spoiling.start()
    failed = run_alone(*command, "--out", "spread/run", "--cluster", nodes.address, code=1)
    spoiling.join(60)
    print(failed.stderr)  # noqa: T201
    assert re.search(r"1 run failed.*base-\w+, seed 1 \(\w+Error", last_line(failed))
    assert not [path.name for path in spread.iterdir() if path.name[0] != "."]
    [in_the_way] = spread.glob(".ner-base*/seeds/1/scores.json")
    in_the_way.rmdir()
    ended = json.loads(run_alone(*command, "--out", "spread/run", "--json").stdout)
    assert content(spread) == content(tmp_path / "alone")
    assert ended["cost"]["attempts"] == 1
    assert ended["cost"]["cpu_seconds"] > 0


@pytest.mark.long
def test_a_node_without_the_model_is_named_before_any_work(
    run_alone: Run, nodes: Any, tiny_model: TinyModel, tmp_path: Path
) -> None:
    ner_file(tmp_path / "train.tsv", 40)
    model = tiny_model()
    weights = (model / "model.safetensors").rename(tmp_path / "weights")
    (model / "model.safetensors").symlink_to(f"/proc/self/fd/{os.open(weights, os.O_RDONLY)}")  # only this process's
    command = ["finetune", "--task", "ner", "-m", model, "--train", "train.tsv", "--out", "run"]
    assert f"node {ADDRESS} of the cluster" in last_line(run_alone(*command, "--cluster", nodes.address, code=1))
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_another_version_on_a_node_is_refused(
    run_alone: Run, nodes: Any, tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("a heart\n" * 20)
    monkeypatch.setattr("greenadapt.version.__version__", "0.0.1")
    command = ("w2v", "-c", "text.txt", "-m", tiny_model(), "--cluster", nodes.address)
    message = last_line(run_alone(*command, code=1))
    assert re.search(rf"node {ADDRESS} .* greenadapt .*, this machine has 0\.0\.1", message)


def test_a_wrong_address_ends_a_command_at_once(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a heart\n" * 20)
    command = ("w2v", "-c", "text.txt", "-m", tiny_model(), "--cluster")
    address = f"{ADDRESS}:{free_port()}"
    assert f"nothing answers at {address}" in last_line(run_alone(*command, address, code=1))
    assert "nowhere" in last_line(run_alone(*command, "nowhere", code=2))
