"""A slice of the campaign of hostile input, always the same one, and whether the campaign notices what is wrong."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from greenadapt.errors import InputError
from torture.fuzzing import fuzz
from torture.hostile import Hostile
from torture.material import write_texts
from torture.readers import READERS, Reader

N = 40


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    write_texts(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if not reader.needs_models])
def test_changed_files_are_read_or_refused_in_one_line(texts: Path, name: str) -> None:
    failures = fuzz(READERS[name], texts, 23, N)
    assert failures.bad == {}
    assert failures.counts["refused"] > 0
    assert failures.counts.total() == N


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.needs_models])
def test_so_are_changed_files_of_models(trained_once: Path, tmp_path: Path, name: str) -> None:
    for model in ("base", "adapted", "many"):
        shutil.copytree(trained_once / model, tmp_path / "models" / model)
    failures = fuzz(READERS[name], tmp_path, 23, N)
    assert failures.bad == {}
    assert failures.counts["refused"] > 0


def test_what_is_wrong_is_noticed(texts: Path) -> None:
    def fail(error: Exception) -> Reader:
        def read(folder: Path, name: str) -> None:
            raise error

        return Reader("failing", ("a.txt",), read)

    good = InputError("a.txt is broken", "mend it")
    for error, verdict in (
        (ValueError("a"), "traceback"),
        (MemoryError(), "crashed"),
        (InputError("something is broken", "mend it"), "unclear"),
        (InputError("a.txt is broken"), "unclear"),
        (good, "refused"),
    ):
        failures = fuzz(fail(error), texts, 1, 3)
        assert failures.counts == {verdict: 3}
        assert len(failures.bad) == (error is not good)


def test_what_a_process_opens_and_starts_is_watched(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in (tmp_path / "in" / "a", tmp_path / "secret"):
        path.write_text("x")
    script = (
        "import os, shutil, subprocess; from pathlib import Path; from torture.watch import watch\n"
        f"os.chdir({str(tmp_path)!r}); seen = watch([Path('in')], [Path('out')])\n"
        "open('in/a').close(); Path('out').mkdir(); Path('out/b').write_text('x')\n"
        "Path('out/d').mkdir(); Path('out/d/e').touch(); shutil.rmtree('out/d')\n"  # removes names relative to d
        "open('in/../secret').close(); Path('in/c').write_text('x'); Path('secret').unlink()\n"
        "subprocess.run(['true'])\n"
        "print('|'.join(seen))"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path.cwd())
    seen = process.stdout.strip().split("|")
    assert [line.split()[0] for line in seen] == ["reads", "writes", "os.remove", "subprocess.Popen"]


def test_a_file_that_is_lost_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("out", "error"):
        (tmp_path / name).write_text("")
    (tmp_path / "seen").write_text("[]")
    thesis = tmp_path / "in" / "thesis"
    thesis.write_text("mine")
    case = Hostile(lambda folder: [], codes=(0,), stays=("in",))
    held = case.held(tmp_path)
    assert case.judged(["index"], 0, tmp_path, held).outcome == "accepted"
    thesis.write_text("other")
    assert case.judged(["index"], 0, tmp_path, held).outcome == "lost"
    thesis.unlink()
    assert case.judged(["index"], 0, tmp_path, held).outcome == "lost"
