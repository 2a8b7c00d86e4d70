"""Vectors that exist are used unless something that the user named differs; who trained them does not count."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import greenadapt
from tests.conftest import WORDS, Run, last_line

pytestmark = pytest.mark.slow
NEW = ["tachycardia", "coronavirus", "dtypes", "eigenvalues"]
TRAINED = ("--min-count", 1, "--epochs", 2, "--dim", 16)


@pytest.fixture
def corpus_and_model(tmp_path: Path, tiny_model: Callable[..., Path]) -> tuple[object, ...]:
    """A corpus and a model."""
    draw = random.Random(1)
    vocabulary = [*dict.fromkeys(WORDS), *NEW]
    lines = [" ".join(draw.choices(vocabulary, k=12)) for _ in range(300)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return "-c", "text.txt", "-m", tiny_model()


def rows(run: Run, *arguments: object) -> dict[str, dict[str, Any]]:
    """What is printed of each stage."""
    last = json.loads(run(*arguments, "--json").stdout)
    return {row["stage"]: row for row in (*last.get("stages", []), last)}


def vectors_of(tmp_path: Path) -> Path:
    [folder] = tmp_path.glob("ws/*/*/w2v")
    return folder


def test_a_later_command_need_not_repeat_how_vectors_were_trained(
    run_alone: Run, corpus_and_model: tuple[object, ...], tmp_path: Path
) -> None:
    rows(run_alone, "adapt", *corpus_and_model, *TRAINED, "--workers", 1, "--rows", "pieces", "--out", "a")
    folder = vectors_of(tmp_path)
    manifest, target = json.loads((folder / "manifest.json").read_text()), folder.resolve()
    assert "workers" not in manifest["config"]
    assert manifest["facts"]["workers"] == 1
    for number, options in enumerate(([], ["--workers", 3], ["--workers", 1], [*TRAINED, "--workers", 2])):
        out = tmp_path / str(number)
        stages = rows(run_alone, "adapt", *corpus_and_model, *options, "--rows", "norm", "--out", out)
        assert (stages["w2v"]["status"], stages["expand"]["status"]) == ("up to date", "done")
        assert stages["w2v"]["config"]["epochs"] == 2
    assert rows(run_alone, "w2v", *corpus_and_model)["w2v"]["status"] == "up to date"
    messages = run_alone("w2v", *corpus_and_model).stderr
    assert "epochs 2" in messages
    assert "--force" in messages
    for option, before, after in (("--epochs", 2, 5), ("--min-count", 1, 5), ("--dim", 16, 32), ("--window", 5, 4)):
        refused = last_line(run_alone("w2v", *corpus_and_model, option, after, code=1))
        assert f"{option[2:].replace('-', '_')}: {before} → {after}" in refused
    adapted = greenadapt.adapt(
        "text.txt", model=corpus_and_model[-1], rows="norm", out=tmp_path / "python", progress=False
    )  # type: ignore[arg-type]
    assert adapted.words
    with pytest.raises(greenadapt.errors.ConflictError, match="epochs: 2 → 5"):
        greenadapt.adapt(
            "text.txt", model=corpus_and_model[-1], epochs=5, rows="norm", out=tmp_path / "b", progress=False
        )  # type: ignore[arg-type]
    assert folder.resolve() == target
    assert rows(run_alone, "w2v", *corpus_and_model, "--force")["w2v"]["config"]["epochs"] == 20


def test_a_result_says_how_many_trained_it(
    run_alone: Run, corpus_and_model: tuple[object, ...], tmp_path: Path
) -> None:
    run_alone("w2v", *corpus_and_model, *TRAINED, "--workers", 2)
    file = vectors_of(tmp_path) / "manifest.json"
    assert json.loads(file.read_text())["facts"]["workers"] == 2
    messages = run_alone("w2v", *corpus_and_model, "--workers", 1).stderr
    assert "trained by several workers" in messages
    assert "trained by several workers" not in run_alone("w2v", *corpus_and_model, "--workers", 4).stderr
