"""The command: its processes, a worker that is killed, signals, and what it refuses before it listens."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result
from uvicorn.config import STARTUP_FAILURE

from greenadapt.config import ReadingOptions, ServeConfig
from greenadapt.server.models import ServedModel, find_models
from greenadapt.server.serving import Application, ServeRequest
from tests.support.small_served import serving
from tests.support.small_tasks import trained

Run = Callable[..., Result]
BODY = {"texts": ["tachycardia of the heart"]}


def ask(address: str, path: str, body: Any = None) -> Any:
    """The answer of the server as soon as it gives one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_listening(worker: int) -> bool:
    """Whether its event loop waits for connections, beside its own pipe."""
    with suppress(FileNotFoundError):
        return any(path.read_text().count("tfd:") > 1 for path in Path(f"/proc/{worker}/fdinfo").iterdir())
    return False


def listening_of(process: subprocess.Popen[str], *killed: int) -> list[int]:
    """Both workers, as soon as they answer."""
    deadline = time.monotonic() + 120
    while {*(workers := workers_of(process))} & {*killed} or [*map(is_listening, workers)] != [True, True]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return workers


def answered_after(stop: Callable[[], None], address: str, body: Any) -> Any:
    """The answer to a request that the server is reading when ``stop`` is called."""
    content = json.dumps(body).encode()
    with closing(http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)) as connection:
        connection.putrequest("POST", "/predict")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(content)))
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert b" 100 " in connection.sock.recv(100)  # as soon as it is read
        stop()
        time.sleep(1)  # the workers hear of it within half a second
        connection.send(content)
        response = connection.getresponse()
        assert response.status == 200
        return json.load(response)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="NOT TESTED: a killed worker, without /proc")
def test_a_killed_worker_comes_back_unless_the_model_is_another_one(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "ner", tmp_path / "ner")
    with serving(tmp_path / "ner", "--workers", "2") as (process, address):
        assert process.stderr is not None
        response = ask(address, "/predict", BODY)
        first, second = listening_of(process)
        os.kill(first, signal.SIGKILL)
        with suppress(ConnectionError):  # if the dying worker still accepts it
            ask(address, "/predict", BODY)
        [third] = {*listening_of(process, first)} - {second}
        trained(tmp_path / "ner")
        os.kill(second, signal.SIGKILL)
        lines = [process.stderr.readline(), process.stderr.readline()]
        assert "ner has changed since the server started: start the server again" in lines[0]
        assert "a worker could not start again, 1 of 2 go on" in lines[1]
        assert [ask(address, "/predict", BODY) for _ in range(3)] == [response] * 3
        assert workers_of(process) == [third]
        assert answered_after(process.terminate, address, BODY) == response
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_of_the_terminal_finishes_what_is_being_answered(models: Path, number: int) -> None:
    with serving(models / "ner") as (process, address):
        assert answered_after(lambda: os.killpg(process.pid, number), address, BODY)["predictions"]
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)


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


def test_a_worker_that_cannot_start_for_any_reason_is_not_started_again(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(*_: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    request = ServeRequest((str(models / "ner"),), ServeConfig(), ReadingOptions())
    sources = find_models(request.models, request.reading, None)
    monkeypatch.setattr(ServedModel, "open", no_memory)
    with pytest.raises(SystemExit) as stopped:
        Application(sources, request)()
    assert stopped.value.code == STARTUP_FAILURE
    assert "CUDA out of memory" in capsys.readouterr().err.splitlines()[-1]
