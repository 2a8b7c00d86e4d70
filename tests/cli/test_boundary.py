"""How the program ends: by signals, by readers that leave, by a full disk, without standard input."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from greenadapt.cli import boundary
from tests.cli.test_commands import text
from tests.conftest import Run

_CHECKPOINT_AT_ONCE = (
    "from greenadapt.cli import main; from greenadapt.vectors import cbow; cbow.CHECKPOINT_SECONDS = 0; main()"
)


def start(*arguments: object, code: str = "", **how: Any) -> subprocess.Popen[str]:
    program = ["-c", code] if code else ["-m", "greenadapt"]
    command = [sys.executable, *program, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **{"stdout": subprocess.PIPE, **how})


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["corpus", "list", "--json"]])
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        process = start(*arguments, stdout=full, env=_plain_environment(tmp_path))
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error == "greenadapt: No space left on device: standard output\n"


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_silently_as_sigpipe_does(tmp_path: Path) -> None:
    process = start("corpus", "list", env=_plain_environment(tmp_path))
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 128 + signal.SIGPIPE


INTERRUPTED_IMPORT = """
import runpy, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["greenadapt", "--version"]
runpy.run_module("greenadapt", run_name="__main__")
"""


def test_ctrl_c_while_the_program_is_imported_has_no_traceback() -> None:
    process = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="NOT TESTED: a terminal")
def test_ctrl_c_at_a_question_exits_with_130(tmp_path: Path) -> None:
    import pty

    left = tmp_path / "ws" / "inputs" / "stdin-00000000"
    left.parent.mkdir(parents=True)
    left.write_text("an input of no result")
    arguments = [sys.executable, "-m", "greenadapt", "clean"]
    environment = {**os.environ, "GREENADAPT_HOME": str(tmp_path / "ws")}
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, arguments, environment)
    output = b""
    while b"Remove them?" not in output:
        output += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    assert left.is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "reason", "codes"),
    [
        (signal.SIGTERM, "terminated", {143}),
        # CPython ends by the signal itself if it arrives in code that exec runs; a shell reports 130 for both.
        (signal.SIGINT, "interrupted", {130, -signal.SIGINT}),
    ],
)
def test_a_signal_is_one_line_and_leaves_a_checkpoint(
    tiny_model: Callable[..., Path], tmp_path: Path, number: int, reason: str, codes: set[int]
) -> None:
    (tmp_path / "text.txt").write_text(text(2000))
    command = ["w2v", "-c", tmp_path / "text.txt", "-m", tiny_model(), "--workers", 1]
    command += ["--workspace", tmp_path / "ws", "--epochs", 2000]
    process = start(*command, code=_CHECKPOINT_AT_ONCE)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("ws/results/.w2v-*/**/checkpoint.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    out, error = process.communicate(timeout=60)
    assert process.returncode in codes, error
    assert (out, "Traceback" in error) == ("", False)
    assert error.splitlines()[-1] == f"greenadapt: {reason}: {boundary._AGAIN}"
    assert len(list(tmp_path.glob("ws/results/.w2v-*/**/checkpoint.safetensors"))) == 1
    assert not list(tmp_path.glob("ws/**/*.part"))
    assert list(tmp_path.glob("ws/names/*/*/corpus/manifest.json"))


@pytest.mark.slow
def test_a_locale_without_utf8_gets_question_marks(run_alone: Run, tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment.pop("PYTHONIOENCODING", None)
    (tmp_path / "text.txt").write_text("red Äpfel", "utf-8")
    run_alone("index", "--documents", "text.txt", "-o", "px")
    for options in ([], ["--json"]):
        process = start("search", "px", "red", *options, cwd=tmp_path, env=environment)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (0, "")
        if options:
            assert out.isascii()
            assert json.loads(out)["text"] == "red Äpfel"
        else:
            assert "red ?pfel" in out


def _plain_environment(workspace: Path) -> dict[str, str]:
    """Without PYTHONUNBUFFERED, so that output is written when it ends."""
    return {"GREENADAPT_HOME": str(workspace), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
