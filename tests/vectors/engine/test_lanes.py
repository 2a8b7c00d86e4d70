"""Vectors in compiled code, against numpy."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

from greenadapt.store.arrays import Array
from greenadapt.vectors.engine import lanes
from greenadapt.vectors.engine.lanes import LANES, WIDE

ROWS = np.random.default_rng(0).normal(size=(4, 2 * WIDE)).astype(np.float32)
START = 5  # a piece need not begin at a multiple of anything


def computed(load: Any, splat: Any) -> Array:
    """A row for each operation, at ``START``; the first number of the last row is a sum."""
    add, subtract, multiply, multiply_add = lanes.add, lanes.subtract, lanes.multiply, lanes.multiply_add
    store, total, prefetch = lanes.store, lanes.total, lanes.prefetch

    def fill(rows: Any, out: Any) -> None:
        a, b, c = load(rows, 0, START), load(rows, 1, START + 1), load(rows, 2, 0)
        prefetch(rows, 3, 0)
        store(out, 0, START, add(a, b))
        store(out, 1, START, subtract(a, b))
        store(out, 2, START, multiply(a, b))
        store(out, 3, START, multiply_add(a, b, c))
        store(out, 4, START, splat(rows[3, 3]))
        out[5, 0] = total(a)

    out = np.zeros((6, 2 * WIDE), np.float32)
    njit(fill)(ROWS, out)
    return out


def test_the_sums_of_sixteen_lanes_and_a_quotient() -> None:
    rows = np.random.default_rng(1).normal(size=(LANES, LANES)).astype(np.float32)
    load, divide, store, store_totals = lanes.load, lanes.divide, lanes.store, lanes.store_totals

    def fill(rows: Any, out: Any) -> None:
        a, b, c, d = load(rows, 0, 0), load(rows, 1, 0), load(rows, 2, 0), load(rows, 3, 0)
        e, f, g, h = load(rows, 4, 0), load(rows, 5, 0), load(rows, 6, 0), load(rows, 7, 0)
        i, j, k, m = load(rows, 8, 0), load(rows, 9, 0), load(rows, 10, 0), load(rows, 11, 0)
        n, o, p, q = load(rows, 12, 0), load(rows, 13, 0), load(rows, 14, 0), load(rows, 15, 0)
        store_totals(out, 0, (a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q))
        store(out, 1, 0, divide(a, b))

    out = np.zeros((2, LANES), np.float32)
    njit(fill)(rows, out)
    expected = [rows[:LANES].sum(axis=1, dtype=np.float64), rows[0].astype(np.float64) / rows[1]]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("width", "load", "splat"), [(LANES, lanes.load, lanes.splat), (WIDE, lanes.load_wide, lanes.splat_wide)]
)
def test_operations(width: int, load: Callable[..., Any], splat: Callable[..., Any]) -> None:
    a, b, c = ROWS[0, START : START + width], ROWS[1, START + 1 : START + 1 + width], ROWS[2, :width]
    expected = np.zeros((6, 2 * WIDE))
    expected[:5, START : START + width] = [a + b, a - b, a * b, a * b + c, np.full(width, ROWS[3, 3])]
    expected[5, 0] = a.sum(dtype=np.float64)
    np.testing.assert_allclose(computed(load, splat), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_an_edit_of_the_arithmetic_changes_the_name_of_the_cache(tmp_path: Path) -> None:
    shutil.copytree(Path(lanes.__file__).parents[2], tmp_path / "greenadapt", ignore=shutil.ignore_patterns("*.nb?"))
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(tmp_path)!r})
for file in ("local.py", "lanes.py"):
    with open(Path({str(tmp_path)!r}, "greenadapt/vectors/engine", file), "a") as opened:
        opened.write("# edited\\n")
    for name in [name for name in sys.modules if name.startswith("greenadapt")]:
        del sys.modules[name]
    from greenadapt.vectors.engine.chunks import train_lines
    print(train_lines.py_func.__qualname__)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, edited = run.stdout.splitlines()
    assert before != edited
