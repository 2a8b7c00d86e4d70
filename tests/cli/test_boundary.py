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
import typer

from greenadapt.cli import app, boundary
from greenadapt.cli.boundary import in_words
from tests.cli.test_commands import text
from tests.conftest import Run, last_line


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
            pytest.param(each, marks=pytest.mark.long)
            for each in (["cost"], ["cost", "--json"], ["status"], ["clean", "--dry-run"])
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
    """What was to be printed would be lost, so it is no success; nothing printed loses nothing."""
    for command, code in (("corpus list", 1), ("corpus list --quiet", 1), ("--version", 1)):
        script = f"{sys.executable} -m greenadapt {command} >&-"
        done = subprocess.run(script, shell=True, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (done.returncode, done.stderr) == (code, "greenadapt: it is closed: standard output\n")


@pytest.mark.parametrize(
    "said", ["could not create a primitive", "can't start new thread", "DefaultCPUAllocator: can't allocate memory"]
)
def test_memory_that_ends_in_a_library_is_one_line(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("the model cannot be opened")
    error.__cause__ = RuntimeError(said)
    with pytest.raises(SystemExit) as stop, in_words():
        raise error
    assert stop.value.code == 1
    assert capsys.readouterr().err.startswith("greenadapt: not enough memory")


def test_any_error_at_the_limit_of_addresses_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from greenadapt.cli.boundary import in_words, lacks_memory; import mmap\n"
        "assert not lacks_memory(SystemError())\n"
        "kept = mmap.mmap(-1, 1 << 30); resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)\n"
        "with in_words(): raise SystemError('error return without exception set')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("greenadapt: not enough memory")) == (1, True), done.stderr


def test_standard_input_that_is_closed_is_one_line(tmp_path: Path) -> None:
    code = (
        "from greenadapt.corpus.opening import open_input\n"
        "from greenadapt.cli.boundary import in_words\n"
        "with in_words(), open_input('-'): pass"
    )
    done = subprocess.run(["sh", "-c", f'exec {sys.executable} -c "{code}" <&-'], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "greenadapt: standard input is closed: give a file to read\n"


@pytest.mark.slow
def test_sigterm_is_one_line_and_143_and_work_is_kept(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    """As Ctrl-C: the text that was written for the engine goes, the checkpoint stays, and the next run goes on."""
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
    last = "greenadapt: terminated: the same command resumes where training was stopped"
    assert error.splitlines()[-1] == last
    [kept] = tmp_path.glob("ws/*/*/.work/w2v/**/epoch-*.safetensors")
    assert not list(kept.parent.glob("text/*"))
    assert not list(tmp_path.glob("ws/**/*.part"))


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("adapt", "resumes after the finished stages"),
        ("finetune", "resumes from the last checkpoint"),
        (
            "predict",
            "the same command starts from the first line (with --cluster it resumes); printed lines are complete",
        ),
        ("align", "the same command starts over"),
    ],
)
@pytest.mark.parametrize(
    ("stop", "code", "why"), [(KeyboardInterrupt(), 130, "interrupted"), (SystemExit(143), 143, "terminated")]
)
def test_a_stopped_command_says_what_is_left_of_it(
    capsys: pytest.CaptureFixture[str], command: str, left: str, stop: BaseException, code: int, why: str
) -> None:
    with pytest.raises(SystemExit) as raised, in_words(SimpleNamespace(invoked_subcommand=command, meta={})):
        raise stop
    assert raised.value.code == code
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"greenadapt: {why}: ")
    assert left in line


def test_with_force_only_what_is_not_finished_goes_on(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("greenadapt.cli.options.make_session", stopped)
    for command in (("adapt", "-c", "a.txt", "-m", "m"), ("finetune", "--task", "ner", "-m", "m", "--train", "t.tsv")):
        assert "repeats the finished" not in last_line(run_alone(*command, code=130))
        assert "repeats the finished" in last_line(run_alone(*command, "--force", code=130))


def test_every_command_has_quiet_and_what_it_leaves_out_is_known() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(boundary._RERUN) <= set(commands)
    leaves = [leaf for one in commands.values() for leaf in getattr(one, "commands", {"": one}).values()]
    assert all("--quiet" in [name for param in leaf.params for name in param.opts] for leaf in leaves)
    short = {leaf.name for leaf in leaves if not any({"--quiet", "-q"} <= set(param.opts) for param in leaf.params)}
    assert short == {"qa"}  # where it is --question


def _plain_environment(workspace: Path) -> dict[str, str]:
    """Without PYTHONUNBUFFERED, so that output is written when it ends."""
    return {"GREENADAPT_HOME": str(workspace), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
