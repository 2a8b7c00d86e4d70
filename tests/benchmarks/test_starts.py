"""Every script of ``benchmarks/`` can be imported: each name that it takes from the package is still there."""

from pathlib import Path

import pytest

from tests.conftest import benchmark_module

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_script_is_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(FOLDER)  # as python benchmarks/… does
    assert benchmark_module(name).__doc__
