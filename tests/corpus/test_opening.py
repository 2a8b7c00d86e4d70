"""What the readers share."""

import gzip
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from greenadapt.corpus.opening import open_input
from greenadapt.errors import InputError, MissingError
from greenadapt.inference.entries import read_texts
from greenadapt.progress import Silent


def test_input_is_a_file_or_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"from a file"))
    with open_input(str(path)) as (stream, name):
        assert (stream.read(), name) == (b"from a file", str(path))
    piped = io.BytesIO(b"from a pipe")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=piped))
    with open_input("-") as (stream, name):
        assert (stream.read(), name) == (b"from a pipe", "standard input")
    assert not piped.closed
    with pytest.raises(MissingError, match="b does not exist"), open_input(str(tmp_path / "b")):
        pass


def test_a_file_that_is_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("heart rate\n" * 20_000)
    documents = read_texts(str(path), Silent())
    next(documents)
    other.write_text("virus\n")
    other.replace(path)
    assert {document.text for document in documents} == {"heart rate"}


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("heart rate\n" * 20_000)
    documents = read_texts(str(path), Silent())
    next(documents)
    os.truncate(path, 1000)
    with pytest.raises(InputError, match=r"a\.txt changed .* it had 220,000 bytes and has 1,000: run"):
        list(documents)
