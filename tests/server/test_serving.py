"""The command: its processes, a worker that is killed, signals, and what it refuses before it listens."""

import asyncio
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from typer.testing import Result
from uvicorn.config import STARTUP_FAILURE

from greenadapt.config import ReadingOptions, RetrievalConfig, ServeConfig
from greenadapt.errors import MissingError
from greenadapt.server.guard import Guard, Metrics
from greenadapt.server.models import ServedModel, find_models
from greenadapt.server.serving import Application, Connection, ServeRequest
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
        response = ask(address, "/neighbours", WORD)
        worker = worker_of(process)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.6)  # by now it has been asked whether it is well, which it may answer for a minute
        os.kill(worker, signal.SIGKILL)
        killed = time.monotonic()
        assert str(worker) in process.stderr.readline()
        assert time.monotonic() - killed < 30
        assert ask(address, "/neighbours", WORD) == response
        assert worker_of(process) != worker
        assert answered_after(process.terminate, address, WORD) == response
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)


@pytest.mark.slow
def test_ctrl_c_finishes_what_is_being_answered(models: Path) -> None:
    with serving(models / "encoder") as (process, address):
        assert answered_after(lambda: os.killpg(process.pid, signal.SIGINT), address, WORD)["word"] == WORD["word"]
        assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)


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

    request = ServeRequest((str(models / "encoder"),), ServeConfig(), ReadingOptions())
    sources = find_models(request.models, request.reading, None)
    monkeypatch.setattr(ServedModel, "open", no_memory)
    with pytest.raises(SystemExit) as stopped:
        Application(sources, request)()
    assert stopped.value.code == STARTUP_FAILURE
    assert "CUDA out of memory" in capsys.readouterr().err.splitlines()[-1]


HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = b"x" * 20_000_000


async def answers(scope: Any, receive: Any, send: Any) -> None:
    """An application with short answers, and on /long with one that fills every buffer."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LONG if scope["path"] == "/long" else b"ok"})


@contextmanager
def small_server(monkeypatch: pytest.MonkeyPatch, limit: int, arrival: float, seconds: int = 1) -> Iterator[int]:
    """The port of a server with few connections and little patience, in this process."""
    monkeypatch.setattr(Connection, "ARRIVAL", arrival)
    config = uvicorn.Config(
        Guard(answers, Metrics(), seconds, 1000), port=0, lifespan="off", log_config=None, log_level="critical",
        http=Connection, limit_concurrency=limit, timeout_graceful_shutdown=seconds, timeout_keep_alive=60,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def opened(port: int, content: bytes, n: int, stack: ExitStack) -> list[socket.socket]:
    connections = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(n)]
    for connection in connections:
        connection.sendall(content)
    return connections


def status(port: int, seconds: float = 5) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status


def closed_after(connection: socket.socket) -> float:
    """Seconds until the server closes a connection, whatever it sends before."""
    begin = time.monotonic()
    connection.settimeout(20)
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - begin


@pytest.mark.parametrize("sent", [b"", HALF, WHOLE, HALF_BODY])
def test_connections_that_wait_for_their_client_keep_nobody_out(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    with small_server(monkeypatch, limit=8, arrival=60, seconds=60) as port, ExitStack() as stack:
        connections = opened(port, sent, 40, stack)
        if sent == WHOLE:  # a request that is not answered yet keeps its place
            for connection in connections:
                with suppress(ConnectionError):
                    connection.recv(1)
        assert [status(port) for _ in range(5)] == [200] * 5


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "longest"), [(b"", 2), (HALF, 2), (WHOLE, 2), (HALF_BODY, 4)])
def test_a_client_that_stops_is_given_up(monkeypatch: pytest.MonkeyPatch, sent: bytes, longest: float) -> None:
    with small_server(monkeypatch, limit=8, arrival=0.5) as port, ExitStack() as stack:
        [connection] = opened(port, sent, 1, stack)
        assert 0.3 < closed_after(connection) < longest


@pytest.mark.slow
@pytest.mark.parametrize("sent", [HALF, WHOLE + HALF, HALF_BODY])
def test_bytes_that_come_one_by_one_prolong_nothing(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    with small_server(monkeypatch, limit=8, arrival=0.5) as port, ExitStack() as stack:
        [connection] = opened(port, sent, 1, stack)
        begin = time.monotonic()
        with suppress(ConnectionError):  # it is closed
            while time.monotonic() - begin < 10:
                connection.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() - begin < 5


def test_a_client_that_does_not_read_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    connection_made = Connection.connection_made
    monkeypatch.setattr(
        Connection, "connection_made", lambda self, transport: (held.append(self), connection_made(self, transport))
    )
    with small_server(monkeypatch, limit=8, arrival=0.5) as port, ExitStack() as stack:
        opened(port, WHOLE.replace(b" / ", b" /long "), 1, stack)
        end = time.monotonic() + 5
        while not held or held[0].connections:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_requests_that_have_arrived_are_not_given_up_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Semaphore(0), threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            began.release()
            await asyncio.to_thread(may_end.wait, 20)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    monkeypatch.setitem(globals(), "answers", slow)
    with small_server(monkeypatch, limit=8, arrival=60, seconds=30) as port, ExitStack() as stack:
        working = opened(port, WHOLE.replace(b" / ", b" /slow "), 4, stack)
        for _ in working:
            assert began.acquire(timeout=10)
        opened(port, HALF, 40, stack)
        assert status(port) == 200
        may_end.set()
        for connection in working:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_1_100_halves_of_requests_do_not_lock_out_others(models: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2500:
        pytest.skip(f"NOT TESTED: many connections, with {hard} open files at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))  # as of most shells; the server raises its own
    try:
        with serving(models / "encoder") as (_, address):
            port = int(address.rpartition(":")[2])
            resource.setrlimit(resource.RLIMIT_NOFILE, (2500, hard))
            assert status(port, 60) == 200
            with ExitStack() as stack:
                opened(port, HALF, 1100, stack)
                begin = time.monotonic()
                assert status(port) == 200
                assert time.monotonic() - begin < 5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
