"""Commands that work on the nodes of a Ray cluster, as a user starts them."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenadapt.storage.files import hash_file
from tests.conftest import Run, last_line
from tests.support.small_cluster import ADDRESS, free_port, started_cluster
from tests.support.small_tasks import TinyModel, adapted, lines, ner_file

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]

_OTHER = "import sys; from greenadapt.cluster import connected\nwith connected(sys.argv[1]): print(flush=True); input()"


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    with started_cluster(3) as cluster:
        yield cluster


def test_what_a_cluster_has_and_what_uses_it(run_alone: Run, nodes: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER, nodes.address, "other program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()  # it is connected
        rows = list(map(json.loads, run_alone("cluster", "--cluster", nodes.address, "--json").stdout.splitlines()))
        other.communicate("\n")
    assert [(row["address"], row["cores"], row["free_cores"], row["gpus"]) for row in rows[:-1]] == [
        (ADDRESS, 1, 1, 0)
    ] * 3
    assert rows[-1]["command"].endswith("'other program'")
    assert rows[-1]["process"] == other.pid
    shown = run_alone("cluster", "--cluster", nodes.address).stdout
    assert "3 of 3" in shown
    assert "Runs:" not in shown


def content(folder: Path) -> dict[str, object]:
    """What is in each file of a result, but for what it cost and when."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "history.jsonl":
            found[str(path.relative_to(folder))] = [{**row, "seconds": 0} for row in lines(path)]
        elif path.is_file() and path.name not in ("manifest.json", "README.md"):
            found[str(path.relative_to(folder))] = hash_file(path)
    return found


def spoil(nodes: Any, folder: Path) -> None:
    """Put a file where the state of a seed would be, and end a node as soon as another one is trained."""
    while not (found := [*folder.glob(".run-base*.work")]):
        time.sleep(0.02)
    (found[0] / "seeds" / "1").mkdir(parents=True)
    (found[0] / "seeds" / "1" / ".state").write_text("not a folder")
    while not [*folder.rglob(".progress.json")]:
        time.sleep(0.05)
    nodes.remove_node(nodes.worker_nodes.copy().pop(), allow_graceful=False)


@pytest.mark.usefixtures("one_thread")
def test_seeds_and_models_train_as_on_one_machine_although_a_node_dies_and_one_fails(
    run_alone: Run, nodes: Any, tiny_model: TinyModel, tmp_path: Path
) -> None:
    ours = adapted(tiny_model)
    for name, n in (("train", 40), ("test", 15)):
        ner_file(tmp_path / f"{name}.tsv", n, n)
    asked = ["finetune", "--task", "ner", "-m", ours, "--compare", ours.parent / "base", "--train", "train.tsv"]
    asked += ["--test", "test.tsv", "--seeds", "2", "--epochs", "6", "--batch-size", "8", "--learning-rate", "0.007"]
    run_alone(*asked, "--out", "alone/run")
    spread = tmp_path / "spread"
    spoiling = threading.Thread(target=spoil, args=(nodes, spread), daemon=True)
    spoiling.start()
    failed = run_alone(*asked, "--out", "spread/run", "--cluster", nodes.address, code=1)
    spoiling.join(60)
    print(failed.stderr)  # noqa: T201
    assert re.search(r"1 run failed.*run-base-\w+, seed 1 \(\w+Error", last_line(failed))
    assert [path.name for path in spread.iterdir() if path.name[0] != "."] == ["run"]
    [in_the_way] = spread.glob(".run-base*.work/seeds/1/.state")
    in_the_way.unlink()
    ended = json.loads(run_alone(*asked, "--out", "spread/run", "--json").stdout)
    assert content(spread) == content(tmp_path / "alone")
    assert ended["cost"]["attempts"] == 1
    assert ended["cost"]["cpu_seconds"] > 0


def test_a_wrong_address_ends_a_command_at_once(run_alone: Run) -> None:
    address = f"{ADDRESS}:{free_port()}"
    assert address in last_line(run_alone("cluster", "--cluster", address, code=1))
