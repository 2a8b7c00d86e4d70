"""File names whose bytes are not UTF-8 are refused in one line, before any work."""

import os
from pathlib import Path

import pytest

from tests.conftest import Run, contents, last_line
from tests.support.small_tasks import TinyModel, known_text, ner_file


@pytest.mark.slow
def test_names_that_are_not_utf8_are_refused_first(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    """Of a file in a folder, of a model, of the target of a link; and options that are no names."""
    text, train, model, folder = map(os.fsdecode, (b"caf\xe9.txt", b"caf\xe9.tsv", b"mod\xe8le", b"m\xf4del"))
    tiny_model("BertForMaskedLM").rename(tmp_path / "model")
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    (tmp_path / "docs" / "a.txt").write_text(known_text(20))
    ner_file(tmp_path / "train.tsv")
    try:
        (tmp_path / "docs" / "sub" / text).write_text(known_text(20))
    except OSError:
        pytest.skip("the file system takes UTF-8 only")
    (tmp_path / train).symlink_to("train.tsv")
    (tmp_path / model).symlink_to("model")
    (tmp_path / "linked").symlink_to(folder)
    before = contents(tmp_path).keys()
    for command in (
        ("adapt", "-c", "docs", "-m", "model", "--out", "adapted"),
        ("finetune", "--train", train, "--task", "ner", "-m", "model"),
        ("finetune", "--train", "train.tsv", "--task", "ner", "-m", model),
        ("index", "--documents", "docs/a.txt", "--out", "linked"),
        ("qa", "-m", "model", "--context", "docs/a.txt", "-q", os.fsdecode(b"Caf\xe9?")),
    ):
        message = last_line(run_alone(*command, code=1))
        assert "is not UTF-8" in message, command
        assert "\\x" in message, command
        assert contents(tmp_path).keys() == before, command
