"""How the program ends: by signals, by readers that leave, by a full disk, without standard input."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from greenadapt.cli import boundary
from greenadapt.cli.boundary import in_words
from greenadapt.cli.settings import commands_of
from tests.cli.test_commands import text
from tests.conftest import Run, last_line
from tests.support.pages import GROUP


def start(*arguments: object, **how: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "greenadapt", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **{"stdout": subprocess.PIPE, **how})


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["cost"], ["cost", "--json"], ["cost", "--help"]])
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        process = start(*arguments, stdout=full, env=_plain_environment(tmp_path))
        _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert error == "greenadapt: No space left on device: standard output\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["corpus", "list"],
        ["--help"],
        *(
            pytest.param(words, marks=pytest.mark.long)
            for words in (["cost"], ["cost", "--json"], ["status"], ["clean", "--dry-run"])
        ),
    ],
)
def test_a_reader_that_leaves_ends_it_silently_as_sigpipe_does(tmp_path: Path, arguments: list[str]) -> None:
    process = start(*arguments, env=_plain_environment(tmp_path))
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) == 128 + signal.SIGPIPE


@pytest.mark.slow
def test_standard_output_that_is_closed_is_one_line(tmp_path: Path) -> None:
    for command in ("corpus list", "corpus list --quiet", "--version"):
        script = f"{sys.executable} -m greenadapt {command} >&-"
        process = subprocess.run(script, shell=True, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (process.returncode, process.stderr) == (1, "greenadapt: it is closed: standard output\n")


@pytest.mark.parametrize(
    "message", ["could not create a primitive", "can't start new thread", "DefaultCPUAllocator: can't allocate memory"]
)
def test_memory_that_ends_in_a_library_is_one_line(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("the model cannot be opened")
    error.__cause__ = RuntimeError(message)
    with pytest.raises(SystemExit) as stop, in_words():
        raise error
    assert stop.value.code == 1
    assert capsys.readouterr().err.startswith("greenadapt: not enough memory")


def test_any_error_at_the_limit_of_addresses_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from greenadapt.cli.boundary import in_words, lacks_memory; import mmap\n"
        "assert not lacks_memory(SystemError())\n"
        "mapped = mmap.mmap(-1, 1 << 30); resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)\n"
        "with in_words(): raise SystemError('error return without exception set')"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stderr.startswith("greenadapt: not enough memory")


def test_standard_input_that_is_closed_is_one_line(tmp_path: Path) -> None:
    code = (
        "from greenadapt.corpus.opening import open_input\n"
        "from greenadapt.cli.boundary import in_words\n"
        "with in_words(), open_input('-'): pass"
    )
    process = subprocess.run(["sh", "-c", f'exec {sys.executable} -c "{code}" <&-'], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == "greenadapt: standard input is closed: give a file to read\n"


@pytest.mark.slow
def test_sigterm_is_one_line_and_143_and_work_is_kept(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    """The text that was written for the engine is removed, and the checkpoint stays for the next run."""
    (tmp_path / "text.txt").write_text(text(2000))
    command = ["w2v", "-c", tmp_path / "text.txt", "-m", tiny_model(), "--workers", 1, "--engine", "gensim"]
    command += ["--workspace", tmp_path / "ws", "--epochs", 2000]
    process = start(*command)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("ws/*/*/.work/w2v/**/text/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.5)  # by now it trains
    process.send_signal(signal.SIGTERM)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, ""), error
    assert error.splitlines()[-1] == "greenadapt: terminated: the same command resumes where training was stopped"
    [checkpoint] = tmp_path.glob("ws/*/*/.work/w2v/**/epoch-*.safetensors")
    assert not list(checkpoint.parent.glob("text/*"))
    assert not list(tmp_path.glob("ws/**/*.part"))


@pytest.mark.parametrize(
    ("command", "consequence"),
    [
        ("adapt", "resumes after the finished stages"),
        ("finetune", "resumes from the last checkpoint"),
        ("predict", "starts from the first line (with --cluster it resumes); printed lines are complete"),
        ("align", "the same command starts over"),
    ],
)
@pytest.mark.parametrize(
    ("stop", "code", "why"), [(KeyboardInterrupt(), 130, "interrupted"), (SystemExit(143), 143, "terminated")]
)
def test_a_stopped_command_says_what_a_rerun_does(
    capsys: pytest.CaptureFixture[str], command: str, consequence: str, stop: BaseException, code: int, why: str
) -> None:
    with pytest.raises(SystemExit) as raised, in_words(SimpleNamespace(invoked_subcommand=command, meta={})):
        raise stop
    assert raised.value.code == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"greenadapt: {why}: ")
    assert consequence in line


def test_with_force_only_what_is_not_finished_goes_on(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("greenadapt.cli.options.make_session", stopped)
    for command in (("adapt", "-c", "a.txt", "-m", "m"), ("finetune", "--task", "ner", "-m", "m", "--train", "t.tsv")):
        assert "repeats the finished" not in last_line(run_alone(*command, code=130))
        assert "repeats the finished" in last_line(run_alone(*command, "--force", code=130))


def test_every_command_has_quiet_and_what_it_leaves_out_is_known() -> None:
    names = {key: [parameter.opts for parameter in command.params] for key, command in commands_of(GROUP).items()}
    assert set(boundary._RERUN) <= {*GROUP.commands}
    assert all(["--quiet", "-q"] in options for key, options in names.items() if key != "qa")
    assert ["--quiet"] in names["qa"]  # whose -q is --question


def _plain_environment(workspace: Path) -> dict[str, str]:
    """Without PYTHONUNBUFFERED, so that output is written when it ends."""
    return {"GREENADAPT_HOME": str(workspace), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
