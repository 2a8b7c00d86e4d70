"""Cost: the paper's table from the formula, and what a meter measures."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from greenadapt import cost
from greenadapt.cost import Cost, Meter, estimate, total


@pytest.mark.parametrize(
    ("hours", "cores", "gpus", "pounds", "dollars"),
    [
        (12, 144, 0, 28.2, (16, 76)),
        (24, 144, 0, 56.4, (32, 152)),
        (240, 0, 8, 544.4, (1421, 4762)),
        (552, 0, 8, 1252.2, (3268, 10952)),
    ],
)
def test_the_papers_runs_cost_what_it_published(
    hours: int, cores: int, gpus: int, pounds: float, dollars: tuple[int, int]
) -> None:
    """Table 1: GreenBioBERT and GreenCovidSQuADBERT on 144 cores, BioBERT v1.0 and v1.1 on eight V100.

    A core that waits for the GPUs costs a few dollars more.
    """
    run = estimate(hours * 3600, cores * hours * 3600, peak_memory_bytes=1, gpus=gpus)
    assert run.co2_kg / 0.45359237 == pytest.approx(pounds, abs=0.05)
    assert (run.usd_low, run.usd_high) == pytest.approx(dollars, rel=0.003, abs=0.5)
    assert ("188 W a GPU" in run.energy_source) == bool(gpus)


@pytest.mark.parametrize(
    ("before", "after", "n_gpus"), [([], [], 0), ([], [0, 3], 1), ([5, 7], [5, 9], 1), ([2], [2], 0)]
)
def test_a_gpu_counts_if_the_work_allocated_memory_there(
    monkeypatch: pytest.MonkeyPatch, before: list[int], after: list[int], n_gpus: int
) -> None:
    allocations = iter([before, after])
    monkeypatch.setattr(cost, "_gpu_allocations", lambda: next(allocations))
    with Meter() as meter:
        pass
    assert ("a GPU" in meter.cost.energy_source) == bool(n_gpus)
    energy = estimate(meter.cost.seconds, meter.cost.cpu_seconds, 1, n_gpus).energy_kwh
    assert meter.cost.energy_kwh == pytest.approx(energy)


def test_a_stage_without_a_cost_counts_as_nothing() -> None:
    cost_of_stage = estimate(10, 5, 700)
    assert total([{}, asdict(cost_of_stage), {"seconds": 2.0}]) == cost_of_stage + Cost(seconds=2.0)
    assert total([{}, asdict(cost_of_stage)]) == cost_of_stage
    assert total([]) == Cost()


def test_costs_of_attempts_add_up_and_survive_json() -> None:
    first, second = estimate(10, 5, 700), estimate(1, 20, 300)
    summed = first + second
    assert (summed.seconds, summed.cpu_seconds, summed.peak_memory_bytes) == (11, 25, 700)
    for name in ("energy_kwh", "co2_kg", "usd_low", "usd_high"):
        assert getattr(summed, name) == pytest.approx(getattr(first, name) + getattr(second, name))
    assert Cost(**json.loads(json.dumps(asdict(summed)))) == summed
    of_gpus = replace(first, energy_source="of GPUs")
    assert (first + of_gpus + second).energy_source == f"{first.energy_source}; of GPUs"


def printed_by(script: str, folder: Path, **environment: str) -> str:
    """The output of a Python script that prints no errors."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    completed = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=variables, capture_output=True, text=True, check=True
    )
    assert completed.stderr == ""
    return completed.stdout


@pytest.mark.slow
def test_a_meter_sees_time_memory_and_children() -> None:
    with Meter() as meter:
        block = bytearray(200_000_000)
        del block
        begin = time.process_time()
        while time.process_time() - begin < 0.2:
            pass
        burn = "import time\nwhile time.process_time() < 0.3: pass"
        subprocess.run([sys.executable, "-c", burn], check=True)
    measured = meter.cost
    assert measured.cpu_seconds > 0.49
    assert measured.seconds > 0.5
    assert 200_000_000 < measured.peak_memory_bytes < 4_000_000_000
    assert measured.energy_kwh == pytest.approx(measured.cpu_seconds * 1560 / 144 / 3.6e6)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's memory")
def test_the_peak_is_that_of_the_metered_work_not_of_earlier_work() -> None:
    with Meter() as first:
        block = bytearray(400_000_000)
        del block
    with Meter() as second:
        block = bytearray(150_000_000)
        del block
    assert first.cost.peak_memory_bytes >= 400_000_000
    assert 150_000_000 <= second.cost.peak_memory_bytes < first.cost.peak_memory_bytes - 200_000_000


def test_the_peak_of_a_large_child_counts_once(tmp_path: Path) -> None:
    script = """
import subprocess, sys
from greenadapt.cost import Meter
for command in ("bytearray(300_000_000)", "0"):
    with Meter() as meter:
        subprocess.run([sys.executable, "-c", command], check=True)
    print(meter.cost.peak_memory_bytes)
"""
    with_child, without = map(int, printed_by(script, tmp_path).split())
    assert with_child > 300_000_000
    assert without < 200_000_000
