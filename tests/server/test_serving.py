"""The command: its processes, a worker that is killed, signals, and what it refuses before it listens."""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from typer.testing import Result
from uvicorn.config import STARTUP_FAILURE

from greenadapt.config import ReadingOptions, ServeConfig
from greenadapt.server import serving as module
from greenadapt.server.models import ServedModel, find_models
from greenadapt.server.serving import Application, ServeRequest
from tests.conftest import Notes

Run = Callable[..., Result]


class ProcessNumber(Application):
    """Answers with the number of its process, and opens no model, for which it would import torch."""

    def make(self) -> Any:
        async def answer(request: Request) -> PlainTextResponse:
            await request.body()
            return PlainTextResponse(str(os.getpid()))

        return Starlette(routes=[Route("/", answer, methods=["POST"])])


SERVE = f"""
from greenadapt.cli import main
from greenadapt.server import serving
from {__name__} import ProcessNumber

serving.Application = ProcessNumber
main()
"""


def ask(address: str) -> int:
    """The number of the process that answers, as soon as one does."""
    with urllib.request.urlopen(address, b"", timeout=120) as response:
        return int(response.read())


def answered_after(stop: Callable[[], None], address: str) -> int:
    """The answer to a request that the server is reading when ``stop`` is called."""
    with closing(http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)) as connection:
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", "1")
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert b" 100 " in connection.sock.recv(100)  # as soon as it is read
        stop()
        time.sleep(1)  # the workers hear of it within half a second
        connection.send(b"?")
        return int(connection.getresponse().read())


@pytest.mark.slow
def test_a_killed_worker_comes_back_and_signals_wait_for_what_is_being_answered(models: Path) -> None:
    command = [sys.executable, "-c", SERVE, "serve", "-m", str(models / "ner"), "--port", "0"]
    root, pipe = Path(__file__).parents[2], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=root, start_new_session=True) as process:
        assert process.stderr is not None
        [address] = re.findall(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
        killed = ask(address)
        os.kill(killed, signal.SIGKILL)
        worker = ask(address)
        assert worker != killed

        def stop() -> None:
            os.kill(worker, signal.SIGHUP)  # a closed terminal sends it to all
            process.terminate()

        assert answered_after(stop, address) == worker
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)


class Worker:
    """A process that runs until a test sets its ``exitcode``."""

    exitcode: int | None = None

    def __init__(self, *_: Any) -> None:
        pass

    def is_alive(self, timeout: float) -> bool:
        return self.exitcode is None

    def start(self) -> None:
        pass

    kill = join = start


def test_a_worker_that_cannot_start_ends_the_server_unless_others_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.supervisors.multiprocess.Process", Worker)
    monkeypatch.setattr(module, "Process", Worker)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    progress, config = Notes(), SimpleNamespace(workers=2)
    supervisor: Any = module._Supervisor(config, None, progress)  # type: ignore[arg-type]
    supervisor.handle_hup()
    assert supervisor.should_exit.is_set()
    supervisor.should_exit.clear()
    supervisor.init_processes()
    killed, other = supervisor.processes
    killed.exitcode = -signal.SIGKILL
    supervisor.keep_subprocess_alive()
    [again, _] = supervisor.processes
    assert again is not killed
    again.exitcode = STARTUP_FAILURE
    supervisor.keep_subprocess_alive()
    assert (supervisor.processes, supervisor.should_exit.is_set()) == ([other], False)
    assert "1 of 2 go on" in progress.lines[-1]
    other.exitcode = STARTUP_FAILURE
    supervisor.keep_subprocess_alive()
    assert supervisor.should_exit.is_set()


def test_what_cannot_be_served_is_refused_at_once(
    run_alone: Run, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ("serve", "-m", models / "ner")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in run_alone(*model, "--port", port, code=1).stderr
    assert "no.such.host.invalid" in run_alone(*model, "--host", "no.such.host.invalid", code=1).stderr
    run_alone("serve", "-m", models / "nothing", code=1)
    assert "2 times" in run_alone(*model, "-m", models / "ner", code=2).stderr
    assert "--index" in run_alone(*model, "--passages", 2, code=2).stderr
    monkeypatch.setenv("GREENADAPT_SERVE_TOKEN", "secret")
    refused = run_alone(*model, "--port", 0, code=2).stderr
    assert "GREENADAPT_SERVE_TOKEN" in refused
    assert "secret" not in refused


def test_a_worker_that_cannot_open_its_model_is_not_started_again(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For any reason, also that it is another model than when the server started."""
    shutil.copytree(models / "ner", tmp_path / "ner")
    request = ServeRequest((str(tmp_path / "ner"),), ServeConfig(), ReadingOptions())
    application = Application(find_models(request.models, request.reading, None), request)
    (tmp_path / "ner" / "task.json").write_text((tmp_path / "ner" / "task.json").read_text() + "\n")

    def no_memory(*_: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    for message in ("has changed since the server started", "CUDA out of memory"):
        with pytest.raises(SystemExit) as stopped:
            application()
        assert stopped.value.code == STARTUP_FAILURE
        assert message in capsys.readouterr().err.splitlines()[-1]
        monkeypatch.setattr(ServedModel, "open", no_memory)
