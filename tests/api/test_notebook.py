"""The notebook runs from its first cell to its last, with a small model and text in the place of those it names."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel

from tests.support.small_tasks import TinyModel, known_text, worded_model

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
CONTENT = json.loads(NOTEBOOK.read_text("utf-8"))
CODE = ["".join(cell["source"]) for cell in CONTENT["cells"] if cell["cell_type"] == "code"]


def run(cell: str, names: dict[str, Any]) -> object:
    """Run a cell; returns what the notebook shows below it: the value of its last expression."""
    body = ast.parse(cell)
    last = body.body.pop() if isinstance(body.body[-1], ast.Expr) else None
    exec(compile(body, str(NOTEBOOK), "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_every_cell_runs(tiny_model: TinyModel, tmp_path: Path) -> None:
    (tmp_path / "papers.txt").write_text(known_text(), "utf-8")
    names: dict[str, Any] = {}
    settings, *cells = CODE
    run(settings, names)
    assert {"corpus", "model", "word", "folder"} <= names.keys()
    names |= {"corpus": tmp_path / "papers.txt", "model": worded_model(tiny_model), "word": "tachycardia"}
    names["folder"] = tmp_path / "quickstart"
    values = [run(cell, names) for cell in cells]
    assert all(value is not None for value in values)
    adapted, neighbours, f1, entities = values
    assert "tachycardia" in adapted.words  # type: ignore[attr-defined]
    assert AutoModel.from_pretrained(tmp_path / "quickstart" / "adapted").config.hidden_size == 32
    assert neighbours
    assert isinstance(f1, float)
    assert 0 <= f1 <= 1
    assert entities is not None
