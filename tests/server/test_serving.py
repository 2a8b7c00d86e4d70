"""The command: its processes, a worker that is killed, signals, and what it refuses before it listens."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result
from uvicorn.config import STARTUP_FAILURE

from greenadapt.config import ReadingOptions, RetrievalConfig, ServeConfig
from greenadapt.errors import MissingError
from greenadapt.server.models import ServedModel, find_models
from greenadapt.server.serving import Application, ServeRequest
from tests.support.small_served import serving

Run = Callable[..., Result]
WORD = {"word": "tachycardia", "top": 2}


def ask(address: str, path: str, body: Any = None) -> Any:
    """The answer of the server as soon as it gives one."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def worker_of(process: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    [worker] = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return worker


def answered_after(stop: Callable[[], None], address: str, body: Any) -> Any:
    """The answer to a request that the server is reading when ``stop`` is called."""
    content = json.dumps(body).encode()
    with closing(http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)) as connection:
        connection.putrequest("POST", "/neighbours")
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
def test_a_killed_worker_comes_back_and_sigterm_finishes_what_is_being_answered(models: Path) -> None:
    with serving(models / "encoder") as (process, address):
        assert process.stderr is not None
        found = ask(address, "/neighbours", WORD)
        worker = worker_of(process)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.6)  # by now it has been asked whether it is well, which it may answer for a minute
        os.kill(worker, signal.SIGKILL)
        killed = time.monotonic()
        assert str(worker) in process.stderr.readline()
        assert time.monotonic() - killed < 30
        assert ask(address, "/neighbours", WORD) == found
        assert worker_of(process) != worker
        assert answered_after(process.terminate, address, WORD) == found
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (0, "", "")


@pytest.mark.slow
def test_ctrl_c_finishes_what_is_being_answered(models: Path) -> None:
    with serving(models / "encoder") as (process, address):
        found = answered_after(lambda: os.killpg(process.pid, signal.SIGINT), address, WORD)
        out, error = process.communicate(timeout=60)
    assert found["word"] == WORD["word"]
    assert (process.returncode, out, error) == (0, "", "")


def test_what_cannot_be_served_is_refused_at_once(
    run_alone: Run, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = ("serve", "-m", models / "encoder")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in run_alone(*encoder, "--port", port, code=1).stderr
    assert "no.such.host.invalid" in run_alone(*encoder, "--host", "no.such.host.invalid", code=1).stderr
    assert "neither" in run_alone("serve", "-m", models / "encoder-base", code=1).stderr
    run_alone("serve", "-m", models / "nothing", code=1)
    assert "2 times" in run_alone(*encoder, "-m", models / "encoder", code=2).stderr
    assert "--max-queue 10" in run_alone(*encoder, "--max-queue", 10, code=2).stderr
    assert "--index" in run_alone(*encoder, "--by", "dense", code=2).stderr
    assert "--passages is for questions" in run_alone(*encoder, "--passages", 2, code=2).stderr
    index = ("--index", "px", "--passages", 11)
    assert "--max-queue 10" in run_alone(*encoder, *index, "--max-texts", 5, "--max-queue", 10, code=2).stderr
    monkeypatch.setenv("GREENADAPT_SERVE_TOKEN", "secret")
    refused = run_alone(*encoder, "--port", 0, code=2).stderr
    assert "GREENADAPT_SERVE_TOKEN" in refused
    assert "secret" not in refused


def test_passages_of_texts_need_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingError, match="tantivy"):
        ServeRequest(("m",), ServeConfig(), ReadingOptions(), retrieval=RetrievalConfig(passages=5))


def test_a_worker_that_cannot_start_for_any_reason_is_not_started_again(
    models: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(*_: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    reading = ReadingOptions()
    found = find_models([str(models / "encoder")], reading, None)
    monkeypatch.setattr(ServedModel, "open", no_memory)
    with pytest.raises(SystemExit) as stopped:
        Application(found, ServeConfig(), reading)()
    assert stopped.value.code == STARTUP_FAILURE
    assert "CUDA out of memory" in capsys.readouterr().err.splitlines()[-1]
