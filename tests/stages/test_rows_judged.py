"""What is said of a model's new rows is about the rows that it has, by whatever recipe, and not about the map."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import greenadapt
from greenadapt.config import RowChoice
from greenadapt.store.results import read_manifest
from tests.conftest import Run
from tests.support.small_tasks import TinyModel, known_text, worded_model

W2V = ["--dim", 32, "--min-count", 1, "--epochs", 1, "--workers", 1]


@pytest.fixture
def adapt_by(tiny_model: TinyModel, tmp_path: Path, run_alone: Run) -> Any:
    """Adapts by a recipe; returns the folder and what was printed."""
    (tmp_path / "papers.txt").write_text(known_text(), "utf-8")
    model = worded_model(tiny_model)

    def adapt(rows: RowChoice) -> tuple[Path, Any]:
        result = run_alone("adapt", "-c", "papers.txt", "-m", model, "--rows", rows, "-o", f"by-{rows}", *W2V)
        return tmp_path / f"by-{rows}", result

    return adapt


@pytest.mark.slow
def test_the_map_is_judged_only_where_its_vectors_are_the_rows(adapt_by: Any, tmp_path: Path) -> None:
    by_map, result = adapt_by("map")
    assert "the map explains nothing" in result.stderr  # a single epoch of little text
    assert "the map explains none of the variance" in (by_map / "README.md").read_text()
    of_map = read_manifest(by_map).facts["rows"]["heldout"]["map"]
    assert greenadapt.AdaptedModel(by_map).alignment.r2 == of_map["r2"] < 0
    folder, result = adapt_by("form")
    facts = read_manifest(folder).facts["rows"]
    model = greenadapt.AdaptedModel(folder)
    assert (model.alignment.recipe, model.alignment.cosine) == ("form", facts["heldout"]["form"]["cosine"])
    card = (folder / "README.md").read_text()
    assert "the map explains" not in result.stderr + result.stdout + card
    assert "`--rows form`" in card
    shutil.rmtree(tmp_path / "ws")  # the figures need no map beside the model
    assert model.alignment.n_heldout > 0
