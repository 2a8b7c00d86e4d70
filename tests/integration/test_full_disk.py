"""What did not go onto a full disk is named, although an error of writing to an open file names none."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from greenadapt.models.weights import write_tensors
from greenadapt.store.arrays import write_arrays
from greenadapt.store.files import write_json, write_lines
from greenadapt.store.results import Job, Outcome
from tests.support.small_tasks import session

LARGE = 1 << 16


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """No file can be longer than ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_json(path, "x" * LARGE),
        lambda path: write_lines(path, [{"x": "x" * LARGE}]),
        lambda path: write_arrays(path, {"x": np.zeros(LARGE)}),
        lambda path: write_tensors({"x": torch.zeros(LARGE)}, path),
    ],
)
def test_files_of_a_result(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "file"
    with full_at(LARGE // 2), pytest.raises(OSError, match="File too large") as error:
        write(path)
    assert error.value.filename == str(path)
    write(path)


def test_a_stage_names_its_folder_where_it_does_not_know_the_file(tmp_path: Path) -> None:
    def build(work: Path) -> Outcome:
        (work / "text").write_bytes(b"x" * LARGE)
        return Outcome({})

    out = tmp_path / "w2v"
    with full_at(LARGE // 2), pytest.raises(OSError, match="File too large") as error:
        replace(session(tmp_path), out=out).run(Job("w2v", {}, {}), build)
    assert error.value.filename == str(out)
    assert [*tmp_path.glob("*w2v*")] == []
