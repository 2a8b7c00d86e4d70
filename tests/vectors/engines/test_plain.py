"""The fast engine in plain numba against the one with lanes, and what numba's cache is named after."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from greenadapt.vectors import engines
from greenadapt.vectors.engines import chunks, padded
from greenadapt.vectors.engines.chunks import NEGATIVES, Settings, TextPart
from tests.vectors.engines.test_chunks import LENGTHS, make_lines, make_noise, make_tables

LANES = "greenadapt.vectors.engines.lanes"
WITHOUT_LANES = f"import sys; sys.modules[{LANES!r}] = None; "
N_WORDS = 60


@pytest.fixture
def plain_chunks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``chunks`` as it is if ``lanes`` cannot be imported."""
    monkeypatch.setitem(sys.modules, LANES, None)
    monkeypatch.delattr(engines, "lanes", raising=False)
    spec = importlib.util.spec_from_file_location("plain_chunks", chunks.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "plain_chunks", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_plain_numba_gives_the_numbers_of_lanes(plain_chunks: ModuleType) -> None:
    assert chunks.WHY_PLAIN == ""
    assert plain_chunks.WHY_PLAIN.startswith("ModuleNotFoundError")
    lines = make_lines(LENGTHS * 5, N_WORDS)
    ids = np.array([word for line in lines for word in line], np.int32)
    ids.flags.writeable = False
    text = TextPart(ids, np.cumsum([0, *map(len, lines)], dtype=np.int64), len(ids))
    for settings in (Settings(5, True, True, False, 5 / NEGATIVES), Settings(5, True, True, True, 5 / NEGATIVES)):
        results = []
        for module in (chunks, plain_chunks):
            start = make_tables(N_WORDS, dim=100)
            tables = padded(start.input), padded(start.output)
            counts = module.train_part(text, tables, make_noise(N_WORDS, 0.5), settings, (0.05, 0.01), np.uint64(7))
            results.append((counts, tables))
        (counts, ours), (plain_counts, plain) = results
        assert counts == plain_counts
        for table, plain_table, before in zip(ours, plain, (start.input, start.output), strict=True):
            np.testing.assert_allclose(plain_table, table, rtol=0, atol=1e-5)
            assert np.abs(table[:, :100] - before).max() > 0.01


def run(code: str, folder: Path) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder).stdout


@pytest.mark.slow
def test_the_engine_says_that_it_is_slower(tmp_path: Path) -> None:
    code = "from greenadapt.vectors.engines.fast import FastEngine; print(FastEngine.note)"
    output = run(WITHOUT_LANES + code, tmp_path)
    assert "slower, in plain numba: ModuleNotFoundError" in output
    assert len(output.splitlines()) == 1


@pytest.mark.slow
def test_an_edit_of_the_arithmetic_changes_the_name_of_the_cache_and_of_another_engine_does_not(tmp_path: Path) -> None:
    shutil.copytree(Path(chunks.__file__).parents[2], tmp_path / "greenadapt", ignore=shutil.ignore_patterns("*.nb?"))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); " + WITHOUT_LANES
    code += "from greenadapt.vectors.engines.chunks import train_lines; print(train_lines.py_func.__qualname__)"
    before = run(code, tmp_path)
    engines = tmp_path / "greenadapt" / "vectors" / "engines"
    for name, changes in (("gensim.py", False), ("plain.py", True)):
        with open(engines / name, "a") as file:
            file.write("# edited\n")
        assert (run(code, tmp_path) != before) == changes
