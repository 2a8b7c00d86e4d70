"""No command writes onto a file or into a folder that is there."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import greenadapt
from greenadapt.cli import app
from greenadapt.errors import ConflictError
from tests.conftest import contents, last_line
from tests.support.small_tasks import TinyModel, adapted, known_text, ner_file

NER = ("--train", "data/train.tsv", "--task", "ner")
COMMANDS = {
    "adapt": ("-c", "docs", "-m", "model", "--out", "data"),
    "finetune": ("-m", "model", *NER, "--out", "other"),
    "pretrain": ("--text", "docs", "-m", "model", "--out", "data"),
    "index": ("--documents", "docs", "--out", "data"),
    "compile": ("-m", "model", "--out", "data"),
    "qa": ("-m", "model", "--documents", "docs", "-q", "What?", "--out", "data"),
    "predict": ("-m", "model", "-i", "docs/a.txt", "--out", "docs/a.txt"),
    "export": ("data/a.vec", "--vectors", "data/a.vec"),
    "report": ("model", "--out", "docs/a.txt"),
}
"""What would write onto a file or into a folder that is there."""


@pytest.mark.slow
def test_nothing_is_written_onto_or_into_what_is_there(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    adapted(tiny_model).rename(tmp_path / "model")
    (tmp_path / "base").rename(tmp_path / "other")
    for name in ("docs", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs" / "a.txt").write_text(known_text())
    ner_file(tmp_path / "data" / "train.tsv")
    (tmp_path / "data" / "a.vec").write_text("2 1\na 0.5\nb 1.0\n")
    before = contents(tmp_path)
    for name, words in COMMANDS.items():
        failure = CliRunner().invoke(app, [name, *words])
        assert failure.exit_code == 1, (name, failure.output, failure.exception)
        assert contents(tmp_path) == before, name
        assert re.search("exists|holds", last_line(failure)), name
    with pytest.raises(ConflictError, match="holds no result of greenadapt"):
        greenadapt.adapt("docs", "other", out="docs", progress=False)
    assert contents(tmp_path) == before
