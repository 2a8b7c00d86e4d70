"""``benchmarks/peers.py`` and ``benchmarks/gpu.py``: small runs of real sides, and what the tables say."""

import subprocess
import sys
from types import ModuleType

import pytest

from tests.conftest import ROOT, benchmark_module

FOLDER = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    pytest.importorskip("torch")
    return benchmark_module("peers")


def turn(own: float, other: float) -> dict[str, dict[str, float]]:
    return {"greenadapt": {"cpu": own, "wall": 2 * own}, "numpy": {"cpu": other, "wall": own}}


def test_a_ratio_is_the_peers_seconds_by_ours_the_median_of_turns(peers: ModuleType) -> None:
    cells = peers.row("align", [turn(1, 3), turn(2, 2), turn(1, 4)])
    assert cells == ["align", "numpy", "1.00", "3.00", "3.00 (1.00 to 4.00)", "0.50 (0.50 to 0.50)"]


def test_a_side_that_fails_has_its_error_in_the_table(peers: ModuleType) -> None:
    cells = peers.row("align", [turn(1, 3), {"greenadapt": {}, "numpy": {"error": "no such file"}}])
    assert cells[:3] == ["align", "numpy", "no such file"]


def test_a_dry_run_lists_the_parts_which_fit_into_a_lease() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, FOLDER / "gpu.py", "--dry-run"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[2:]
    limits = {cells[1].strip(): int(cells[2]) for cells in (line.split("|") for line in lines)}
    assert {"precision", "trainer", "rows-own", "predict", "two-processes", "resumption"} <= set(limits)
    assert sum(limits.values()) < 600


def test_a_part_that_fails_or_does_not_hold_is_said() -> None:
    gpu = benchmark_module("gpu")
    assert gpu.row("qa", {"error": "took more than 75 s"}) == ["qa", "failed", "", "", "took more than 75 s"]
    result = {"seconds": 2.0, "peak MB": {"resident": 300.0}, "check": {"within 5 %": False}, "ratio": 1.5}
    assert gpu.row("precision", result) == ["precision", "does not hold", "2.0", "300", "within 5 %; ratio 1.5"]
