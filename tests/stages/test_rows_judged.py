"""What is said of a model's new rows is about the rows that it has, by whatever recipe, and not about the map."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import html

import greenadapt
from greenadapt.config import ExpandConfig, RowChoice, SessionOptions, W2VConfig
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


def _rows(folder: Path) -> Any:
    return read_manifest(folder).facts["rows"]


@pytest.mark.slow
def test_the_map_is_judged_only_where_its_vectors_are_the_rows(adapt_by: Any, tmp_path: Path, run_alone: Run) -> None:
    by_map, result = adapt_by("map")
    assert "the map explains nothing" in result.stderr  # a single epoch of little text
    assert "the map explains none of the variance" in (by_map / "README.md").read_text()
    of_map = _rows(by_map)["heldout"]["map"]
    assert greenadapt.AdaptedModel(by_map).alignment.r2 == of_map["r2"] < 0
    for recipe in ("norm", "pieces", "form", "auto"):
        folder, result = adapt_by(recipe)
        row_facts = _rows(folder)
        assert row_facts["recipe"] == recipe or recipe == "auto"
        figures = row_facts["heldout"][row_facts["recipe"]]
        model = greenadapt.AdaptedModel(folder)
        assert (model.alignment.recipe, model.alignment.cosine) == (row_facts["recipe"], figures["cosine"])
        assert figures["r2"] != of_map["r2"]
        assert f"--rows {row_facts['recipe']} on" in repr(model)
        assert "the map explains" not in result.stderr + result.stdout + (folder / "README.md").read_text()
        assert "it explains nothing" not in result.stdout
        assert f"`--rows {row_facts['recipe']}`" in (folder / "README.md").read_text()
    run_alone("report", "by-norm", "--out", "page.html")
    cells = html.parse(tmp_path / "page.html").xpath("//th[@scope='row']/text()")
    assert "--rows norm (the new rows)" in cells


@pytest.mark.slow
def test_rows_of_the_mean_length_are_as_near_by_cosine_as_the_map(adapt_by: Any) -> None:
    """Lengths do not change which rows are near, only the variance that is explained."""
    of_map, norm = (_rows(adapt_by(rows)[0])["heldout"][rows] for rows in ("map", "norm"))
    if of_map["n_heldout"] == norm["n_heldout"]:  # every known word can be spelled without its row
        assert norm["cosine"] == pytest.approx(of_map["cosine"], abs=1e-5)
        assert norm["base_rows"] == of_map["base_rows"]
    assert norm["mapped_norm"] == pytest.approx(norm["base_norm"], rel=1e-4)
    assert np.isfinite(norm["r2"])


@pytest.mark.slow
def test_the_figures_need_no_map_beside_the_model(adapt_by: Any, tmp_path: Path) -> None:
    folders = [adapt_by(rows)[0] for rows in ("map", "form")]
    shutil.rmtree(tmp_path / "ws")
    for folder in folders:
        assert greenadapt.AdaptedModel(folder).alignment.n_heldout > 0
        assert {row.view[:3] for row in greenadapt.AdaptedModel(folder).neighbours("virus")} == {"row"}


@pytest.mark.slow
def test_python_warns_of_what_was_written(adapt_by: Any, tiny_model: TinyModel, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "w2v": W2VConfig(dim=32, min_count=1, epochs=1),
        "expand": ExpandConfig("form"),
        "options": SessionOptions(workers=1),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        greenadapt.adapt(known_text(), worded_model(tiny_model), "a", progress=False, **settings)
    assert not any("the map" in str(warning.message) for warning in caught)
