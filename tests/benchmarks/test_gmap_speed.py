"""``benchmarks/gmap_speed.py`` on tiny models, for two steps."""

import os
import re
import resource
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from tests.conftest import benchmark_module
from tests.support.small_tasks import TinyModel, texts_file
from tests.support.watched import watched

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return benchmark_module("gmap_speed")


@pytest.fixture
def arguments(tiny_model: TinyModel, tmp_path: Path) -> list[str]:
    """Those of a run with two models of the same tokenizer."""
    texts_file(tmp_path / "train.txt", 24)
    domain, general = (tiny_model(name=name, initializer_range=0.1) for name in ("domain", "general"))
    options = {"--data": tmp_path, "--model": domain, "--memory": general}
    sizes = {"--steps": 2, "--batch-size": 4, "--max-length": 32, "--precision": "float32"}
    return [str(part) for option in (options | sizes).items() for part in option]


def run(bench: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gmap_speed.py", *arguments])
    bench.main()


def test_all_sides_learn_from_the_same_batches(
    bench: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    training, trained = watched()
    peaks = {"plain": 100_000_000, "memory": 150_000_000}
    monkeypatch.setattr(bench, "Training", training)
    monkeypatch.setattr(bench, "peak", peaks.__getitem__)
    run(bench, monkeypatch, arguments)

    (plain, by_plain), (model, by_memory) = trained
    assert not hasattr(plain, "memory")
    assert [step.number for step in by_plain] == list(range(1, 3 + bench.WARM_UP))
    facts = [[(step.pieces, step.examples, step.learning_rate) for step in steps] for _, steps in trained]
    assert facts[0] == facts[1]
    losses = [np.array([step.loss for step in steps]) for steps in (by_plain, by_memory)]
    assert np.abs(losses[0] - losses[1]).max() > 1e-4
    assert model.memory.plan.gated
    assert len(model.memory.plan.targets) == 2
    assert model.memory.frozen

    lines = capsys.readouterr().out.splitlines()
    assert "float32" in lines[0]
    assert re.match(r"24 texts of \d+ to \d+ pieces", lines[1])
    assert lines[2] == "2 steps of 4 texts, after 5 to warm up"
    assert [line.split()[0] for line in lines[-2:]] == ["plain", "memory"]
    assert lines[-2].split()[1:4] == [lines[-2].split()[1], "1.000", "1.000"]
    assert [line.split()[-2:] for line in lines[-2:]] == [["100", "1.00"], ["150", "1.50"]]


def test_ratios_are_of_medians_and_of_steps_on_the_same_batch(bench: ModuleType) -> None:
    plain = [1.0, 2.0, 4.0, 0.5, 3.0]
    seconds = {"plain": plain, "memory": [1.5, 2.0, 8.0, 1.0, 6.0]}
    _, first, memory = bench.table(seconds, {"plain": 2e6, "memory": 3e6})
    assert first.split() == ["plain", "2000.0", "1.000", "1.000", "(1.000–1.000)", "2", "1.00"]
    assert memory.split() == ["memory", "2000.0", "1.000", "2.000", "(1.500–2.000)", "1.60", "3", "1.50"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="measures the memory of the GPU there")
def test_one_side_alone_tells_its_peak(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """No less than this process has now, and no more than the kernel says that it ever had."""
    run(bench, monkeypatch, [*arguments, "--alone", "memory"])
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 0.95 * resident < int(capsys.readouterr().out) < 1.05 * highest


def test_the_peak_is_what_a_process_of_one_side_prints_last(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "alone.py"
    script.write_text("import sys\nprint('a note')\nprint(len(sys.argv))\nsys.exit(sys.argv[-1] != 'memory')")
    monkeypatch.setattr(bench, "__file__", str(script))
    monkeypatch.setattr(sys, "argv", ["gmap_speed.py", "--data", "DATA"])
    assert bench.peak("memory") == len(["alone.py", "--data", "DATA", "--alone", "memory"])
    with pytest.raises(SystemExit, match="plain alone failed"):
        bench.peak("plain")
