"""``--dry-run``: what would run and what is up to date, found without writing anything."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_commands import text
from tests.conftest import Run, json_lines, last_line
from tests.support.small_tasks import TinyModel, adapted, ner_file, qa_file


def tree(folder: Path) -> dict[str, int]:
    """Everything below ``folder``, with the times of changes."""
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def steps(run_alone: Run, *arguments: object) -> list[tuple[str, str, str]]:
    """``stage``, ``status`` and ``why`` of each step, after checking that nothing was written."""
    before = tree(Path.cwd())
    rows: list[dict[str, Any]] = json_lines(run_alone(*arguments, "--dry-run", "--json"))
    assert tree(Path.cwd()) == before
    return [(row["stage"], row["status"], row["why"]) for row in rows]


@pytest.mark.slow
def test_adapt_says_what_would_run_from_the_first_change_on(
    run_alone: Run, tiny_model: TinyModel, tmp_path: Path
) -> None:
    adapt = ["adapt", "-c", tmp_path / "text.txt", "-m", tiny_model(), "--epochs", 1, "--engine", "gensim"]
    (tmp_path / "text.txt").write_text(text())
    after = [(stage, "would run", "after corpus") for stage in ("w2v", "align", "expand")]
    assert steps(run_alone, *adapt) == [("corpus", "would run", "no result yet"), *after]
    run_alone(*adapt)
    up_to_date = [(stage, "up to date", "") for stage in ("corpus", "w2v", "align", "expand")]
    assert steps(run_alone, *adapt) == up_to_date
    assert "words " in run_alone(*adapt, "--dry-run").stdout
    (tmp_path / "text.txt").write_text(text(400))
    assert steps(run_alone, *adapt) == [("corpus", "would run", "text changed"), *after]
    assert "last time" in run_alone(*adapt, "--dry-run").stdout
    refused = run_alone(*adapt, "--dim", 8, "--dry-run", code=1)
    assert "dim: 32 → 8" in last_line(refused)
    (tmp_path / "text.txt").write_text(text())
    expand = ["expand", "-c", tmp_path / "text.txt", "--out", "own"]
    assert steps(run_alone, *expand) == [("expand", "would run", "no result yet")]
    assert steps(run_alone, *adapt, "--force")[0] == ("corpus", "would run", "--force")


@pytest.mark.slow
def test_training_and_answering_write_nothing(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    model, base = adapted(tiny_model), tmp_path / "base"
    labelled, questions = ner_file(tmp_path / "train.tsv", 8), qa_file(tmp_path / "qa.json", 2)
    (tmp_path / "text.txt").write_text(text(20))
    new = "would run", "no result yet"
    tuned = ["finetune", "--task", "ner", "-m", model, "--train", labelled, "--test", labelled, "--max-steps", 1]
    assert steps(run_alone, *tuned, "--compare", base) == [("finetune", *new)] * 2
    assert steps(run_alone, "pretrain", "-m", model, "--text", "text.txt") == [("pretrain", *new)]
    answering = ["qa", "-m", tiny_model("BertForQuestionAnswering", name="squad"), "--data", questions]
    assert steps(run_alone, *answering, "-o", "answers") == [("qa", *new)]
    run_alone(*answering, "--dry-run", code=2)
    run_alone(*tuned, "-o", "tuned")
    rows = steps(run_alone, *tuned, "-o", "tuned", "--compare", base)
    assert rows == [("finetune", "up to date", ""), ("finetune", *new)]


def test_a_download_and_standard_input_are_not_read(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    recipe = 'title = "Far"\nlicence = "none"\nformat = "text"\n[[sources]]\nurl = "http://127.0.0.1:9/a"\n'
    (tmp_path / "far.toml").write_text(recipe)
    prepare = ["corpus", "prepare", tmp_path / "far.toml", "-m", tiny_model()]
    assert steps(run_alone, *prepare, "--download") == [
        ("download", "would run", "not downloaded yet"),
        ("corpus", "would run", "after download"),
    ]
    assert "--download" in last_line(run_alone(*prepare, "--dry-run", code=1))
    refused = run_alone("corpus", "prepare", "-", "-m", tmp_path / "bertmodel", "--dry-run", code=2, stdin="a text")
    assert "--dry-run" in last_line(refused)
    assert not (tmp_path / "ws").exists()
