"""Names and words from files, from folders and from the command line control no terminal and break no line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.cli.output.console import make_progress
from tests.conftest import Run, json_lines

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
def test_what_the_command_line_repeats_is_harmless(words: list[str]) -> None:
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
