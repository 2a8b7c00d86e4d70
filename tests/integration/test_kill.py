"""``kill -9`` at any moment: nothing half-written is ever seen, and the same command again ends in the same bytes."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.store.files import hash_file
from greenadapt.store.results import CARD, MANIFEST
from tests.conftest import WORDS, Run
from tests.support.processes import Forked, printed_random

STAGES = ("corpus", "w2v", "align", "expand")
KILLS = 5  # every single step of a stage is a kill's turn in test_acceptance.py


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Enough text that a run takes a second beyond its start."""
    draw = random.Random(1)
    new = ["".join(draw.choices("bcdfgaeiou", k=7)) for _ in range(2000)]
    vocabulary = [*dict.fromkeys(WORDS)] * 20 + new
    path = tmp_path / "text.txt"
    path.write_text("".join(" ".join(draw.choices(vocabulary, k=25)) + "\n" for _ in range(12_000)))
    return path


def command(workspace: Path, corpus: Path, model: Path) -> list[str]:
    options = ["--workspace", workspace, "--corpus", corpus, "--model", model, "--workers", "1", "--epochs", "8"]
    return ["-m", "greenadapt", "adapt", *map(str, options)]


def published(workspace: Path) -> list[Path]:
    """What readers open: the stages of every corpus and model."""
    return [path for path in workspace.glob("names/*/*/*") if not path.name.startswith(".")]


def digests(workspace: Path) -> dict[str, str]:
    """SHA-256 of every published file but manifests and cards, which have the cost, by stage and name."""
    hashes = {}
    for link in published(workspace):
        folder = link.resolve(strict=True)
        for path in folder.rglob("*"):
            if path.is_file() and path.name not in (MANIFEST, CARD):
                hashes[f"{link.name}/{path.relative_to(folder)}"] = hash_file(path)
    return hashes


def whole_stages(workspace: Path) -> list[str]:
    """The stages that a reader sees now; fails where one of them is not whole."""
    seen = []
    for stage in published(workspace):
        folder = stage.resolve(strict=True)
        manifest = json.loads((folder / MANIFEST).read_text())
        for name, entry in manifest["files"].items():
            assert hash_file(folder / name) == entry["sha256"], f"{stage.name}/{name} is not whole"
        seen.append(stage.name)
    return seen


@pytest.mark.long
def test_killed_at_random_moments(
    tmp_path: Path, corpus: Path, tiny_model: Callable[..., Path], run_alone: Run
) -> None:
    model = tiny_model()
    (tmp_path / "few.txt").write_text(" ".join(WORDS))
    # The first use of the fast engine compiles it, which would be taken for the time that a run needs.
    run_alone("w2v", "-c", "few.txt", "-m", model, "--min-count", 1, "--workers", 1, "--engine", "fast")
    start = time.monotonic()
    assert Forked(command(tmp_path / "whole", corpus, model), tmp_path).completed().returncode == 0
    seconds = time.monotonic() - start
    expected = digests(tmp_path / "whole")
    assert {name.partition("/")[0] for name in expected} == set(STAGES)

    draw = printed_random()
    killed, round_number, seen = 0, 0, set()
    while killed < KILLS:
        workspace = tmp_path / f"killed{round_number}"
        process = Forked(command(workspace, corpus, model), tmp_path)
        end = time.monotonic() + draw.uniform(0.1, 0.7) * seconds
        while time.monotonic() < end and process.poll() is None:
            seen.update(whole_stages(workspace))
            time.sleep(0.05)
        process.kill()
        if process.completed().returncode == -9:
            killed += 1
            seen.update(whole_stages(workspace))
        else:  # what the killed runs before it left was nearly done
            assert process.returncode == 0
            assert digests(workspace) == expected
            round_number += 1
    last = tmp_path / f"killed{round_number}"
    assert Forked(command(last, corpus, model), tmp_path).completed().returncode == 0
    assert digests(last) == expected
    assert seen, "every run was killed before its first stage"


def test_a_second_run_at_the_same_time_waits_for_the_first(
    tmp_path: Path, corpus: Path, tiny_model: Callable[..., Path]
) -> None:
    model = tiny_model()
    first = Forked(command(tmp_path / "ws", corpus, model), tmp_path)
    try:
        while not list((tmp_path / "ws").glob("results/.*/.lock")) and first.poll() is None:
            time.sleep(0.01)
        second = Forked(command(tmp_path / "ws", corpus, model), tmp_path).completed(120)
        assert first.completed().returncode == 0
    finally:
        first.kill()
    assert second.returncode == 0
    assert f"process {first.pid} on" in second.stderr
    assert "waiting for it" in second.stderr
    assert len([*(tmp_path / "ws" / "results").iterdir()]) == len(STAGES)
