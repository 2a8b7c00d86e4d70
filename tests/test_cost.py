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
from greenadapt.cost import PAPER_ROWS, Cost, Meter, estimate, total


def test_the_papers_table_comes_out_of_power_hours_and_price() -> None:
    assert [(row.watts, row.hours) for row in PAPER_ROWS] == [(1505, 240), (1505, 552), (1560, 12), (1560, 24)]
    assert [round(row.co2_lbs, 1) for row in PAPER_ROWS] == [544.4, 1252.2, 28.2, 56.4]
    for row in PAPER_ROWS:
        assert round(row.co2_lbs) == row.published_co2_lbs
        assert tuple(map(round, row.usd)) == row.published_usd


def test_the_paper_s_own_run_costs_what_it_published_as_a_stage() -> None:
    """Twelve hours on all 144 cores: the stage's figures and the table's are one scale."""
    ours = estimate(seconds=12 * 3600, cpu_seconds=144 * 12 * 3600, peak_memory_bytes=1)
    assert ours.energy_kwh == pytest.approx(1.56 * 12)
    assert ours.co2_kg / 0.45359237 == pytest.approx(28.2, abs=0.05)
    assert (round(ours.usd_low), round(ours.usd_high)) == (16, 76)


def test_gpus_cost_what_the_paper_published_for_them() -> None:
    """BioBERT's 240 hours on eight V100; the core that waits for them costs a dollar or two more."""
    theirs = estimate(seconds=240 * 3600, cpu_seconds=0, peak_memory_bytes=1, gpus=8)
    assert theirs.co2_kg / 0.45359237 == pytest.approx(544.4, abs=0.05)
    assert (theirs.usd_low, theirs.usd_high) == (pytest.approx(1421, abs=3), pytest.approx(4762, abs=11))
    assert theirs.energy_source.endswith("W a core, wall time at 188 W a GPU")


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
