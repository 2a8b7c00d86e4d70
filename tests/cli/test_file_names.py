"""File names whose bytes are not UTF-8 are refused in one line, before any work."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from tests.conftest import Run, last_line
from tests.support.small_tasks import TinyModel, known_text, ner_file

NAME = os.fsdecode(b"caf\xe9.txt")


@pytest.fixture
def files(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> Path:
    """A model, and a file with a bad name, alone and in a folder, behind a link, and as a folder itself."""
    tiny_model("BertForMaskedLM").rename(tmp_path / "model")
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "docs" / "sub"):
        try:
            (folder / NAME).write_text(known_text(20))
        except OSError:
            pytest.skip("the file system takes UTF-8 only")
    (tmp_path / "docs" / "a.txt").write_text(known_text(20))
    ner_file(tmp_path / os.fsdecode(b"caf\xe9.tsv"))
    ner_file(tmp_path / "train.tsv")
    (tmp_path / "link.txt").symlink_to(NAME)
    (tmp_path / os.fsdecode(b"mod\xe8le")).symlink_to("model")
    (tmp_path / "linked").symlink_to(os.fsdecode(b"m\xf4del"))
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if "ws" not in path.parts)


@pytest.mark.slow
def test_names_that_are_not_utf8_are_refused_first(run_alone: Run, files: Path) -> None:
    before = names(files)
    train = os.fsdecode(b"caf\xe9.tsv")
    for command in (
        ("adapt", "-c", "docs", "-m", "model", "--out", "adapted"),
        ("finetune", "--train", train, "--task", "ner", "-m", "model"),
        ("finetune", "--train", "train.tsv", "--task", "ner", "-m", os.fsdecode(b"mod\xe8le")),
        ("index", "--documents", "docs/a.txt", "--out", "linked"),
        ("qa", "-m", "model", "--context", "docs/a.txt", "-q", os.fsdecode(b"Caf\xe9?")),
    ):
        message = last_line(run_alone(*command, code=1))
        assert "is not UTF-8" in message, command
        assert "\\x" in message, command
        assert names(files) == before, command


def test_names_in_archives_are_replaced(run_alone: Run, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        member = tarfile.TarInfo(NAME)
        member.size = 4
        archive.addfile(member, io.BytesIO(b"word"))
    run_alone("index", "--documents", "a.tar", "--out", "px")
    assert "caf\ufffd.txt" in run_alone("search", "px", "word", "--json").stdout
