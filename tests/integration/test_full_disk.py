"""What did not go onto a full disk is named, although an error of writing to an open file names none."""

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from greenadapt.models.weights import read_tensors, write_tensors
from greenadapt.store.arrays import write_arrays
from greenadapt.store.files import naming, write_json, write_lines
from greenadapt.store.results import Job, Outcome
from tests.conftest import Run, last_line
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


def test_tensors_come_back(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.ones(2, requires_grad=True)}
    write_tensors(tensors, tmp_path / "t")
    for name, tensor in read_tensors(tmp_path / "t").items():
        assert torch.equal(tensor, tensors[name])


def test_a_stage_names_its_folder_where_it_does_not_know_the_file(tmp_path: Path) -> None:
    def build(work: Path) -> Outcome:
        (work / "text").write_bytes(b"x" * LARGE)
        return Outcome({})

    out = tmp_path / "w2v"
    with full_at(LARGE // 2), pytest.raises(OSError, match="File too large") as error:
        replace(session(tmp_path), out=out).run(Job("w2v", {}, {}), build)
    assert error.value.filename == str(out)
    assert [*tmp_path.glob("*w2v*")] == []


def test_other_errors_stay_as_they_are() -> None:
    named, unnamed = OSError(errno.ENOSPC, "full", "mine"), OSError(errno.EIO, "broken")
    for error, filename in ((named, "mine"), (unnamed, None)):
        with pytest.raises(OSError, match=r"full|broken") as caught, naming("yours"):
            raise error
        assert caught.value.filename == filename


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.long
def test_by_the_command_line(run_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "v.vec").write_text("2 2\na 1 2\nb 3 4\n")
    (tmp_path / "full.vec").symlink_to("/dev/full")
    refused = run_alone("export", "full.vec", "--vectors", "v.vec", code=1)
    assert last_line(refused) == "greenadapt: No space left on device: full.vec"
    for options in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            completed = subprocess.run(
                [sys.executable, "-m", "greenadapt", "corpus", "list", *options],
                stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=dict(os.environ),
            )  # fmt: skip
        assert (completed.returncode, completed.stderr) == (1, "greenadapt: No space left on device: standard output\n")
