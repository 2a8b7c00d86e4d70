"""Names and words from files, from folders and from the command line control no terminal and break no line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.cli.output.console import make_progress
from tests.conftest import WORDS, Run, json_lines, last_line
from tests.support.small_tasks import texts_file, worded_model

EVIL = "a\x1b]0;b\x07\x9b2J\u202egnp.exe\u2066\r\nb\u2028c\td"
UNSHOWN = {*"\x1b\x07\x9b\u202e\u2066\r\t\u2028"}


def test_a_document_of_an_evil_name_is_one_line_of_search(run_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a\x1b[31m\nfake result.txt").write_text("the virus \x1b[2J was\there")
    record = {"id": EVIL, "title": EVIL, "text": "the virus was here"}
    (tmp_path / "docs" / "b.jsonl").write_text(json.dumps(record) + "\n")
    indexed = run_alone("index", "--documents", "docs", "-o", "ix")
    found_lines = run_alone("search", "ix", "virus").stdout
    assert not UNSHOWN & {*indexed.stdout, *indexed.stderr, *found_lines}
    numbered = [line for line in found_lines.splitlines() if line[:3] in ("1. ", "2. ")]
    assert sorted("fake result" in line for line in numbered) == [False, True]
    assert not any(line.startswith("fake result") for line in found_lines.splitlines())
    rows = json_lines(run_alone("search", "ix", "virus", "--json"))
    assert {row["document"] for row in rows} == {"docs/a\x1b[31m\nfake result.txt:1", EVIL}


@pytest.mark.parametrize(
    "words",
    [
        ["adapt", "-c", EVIL, "-m", "m"],
        [EVIL],
        ["w2v", "-c", "x", "-m", "m", "surplus\x1b[2J"],
    ],
)
def test_what_the_command_line_repeats_is_harmless(run_alone: Run, words: list[str]) -> None:
    from typer.testing import CliRunner

    from greenadapt.cli import app

    result = CliRunner().invoke(app, words)
    assert result.exit_code in (1, 2)
    assert result.stderr
    assert not UNSHOWN & {*result.stdout, *result.stderr}


def test_notes_warnings_and_bars_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    progress = make_progress()
    progress.note(EVIL)
    progress.warn(EVIL)
    with progress.bar(EVIL, 3, "words") as bar:
        bar.advance(3, lr=EVIL)
    written = capsys.readouterr().err
    assert not UNSHOWN & {*written}
    assert len(written.splitlines()) == 3


@pytest.mark.slow
def test_labels_and_words_with_control_characters_go_through_every_command(
    run_alone: Run, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    """``report`` drew them by a library that aborts the process."""
    model = worded_model(tiny_model)
    (tmp_path / "text.txt").write_text(f"{' '.join(WORDS)} ta\x1bchy car\u202edia\n" * 40)
    run_alone("adapt", "-c", "text.txt", "-m", model, "-o", "adapted", "--min-count", 1, "--epochs", 1, "--workers", 1)
    train = texts_file(tmp_path / "train.jsonl")
    rows = [json.loads(line) for line in train.read_text().splitlines()]
    for row in rows:
        row["label"] = f"{row['label']}{EVIL}"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--task", "classification", "--train", train, "--test", train]
    result = run_alone("finetune", "-m", "adapted", *options, "--epochs", 1, "--max-length", 32, "-o", "run")
    assert not UNSHOWN & {*result.stdout, *result.stderr}
    result = run_alone("report", "run", "--out", "page.html")
    assert not UNSHOWN & {*result.stdout, *result.stderr}
    for page in (tmp_path / "page.html", tmp_path / "run" / "README.md"):
        assert not (UNSHOWN - {"\t", "\u2028"}) & {*page.read_text()}, page
    exact = json.loads(run_alone("evaluate", "-m", "run", "--test", train, "--json").stdout)
    assert all(label.endswith(EVIL) for label in exact["seeds"][0]["test"]["by_class"])
    assert last_line(run_alone("evaluate", "-m", "run", "--test", EVIL, code=1)).isprintable()
