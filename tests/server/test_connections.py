"""Clients that send half a request and stop, or do not read their answer: nobody else is kept from answers."""

import asyncio
import http.client
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from greenadapt.server.guard import Guard, Metrics
from greenadapt.server.serving import Connection
from tests.support.small_served import serving

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
    for one in connections:
        one.sendall(content)
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


@pytest.mark.parametrize(("sent", "longest"), [(b"", 2), (HALF, 2), (WHOLE, 2), (HALF_BODY, 4)])
def test_a_client_that_stops_is_given_up(monkeypatch: pytest.MonkeyPatch, sent: bytes, longest: float) -> None:
    with small_server(monkeypatch, limit=8, arrival=0.5) as port, ExitStack() as stack:
        [connection] = opened(port, sent, 1, stack)
        assert 0.3 < closed_after(connection) < longest


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
    made = Connection.connection_made
    monkeypatch.setattr(
        Connection, "connection_made", lambda self, transport: (held.append(self), made(self, transport))
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

    monkeypatch.setattr("tests.server.test_connections.answers", slow)
    with small_server(monkeypatch, limit=8, arrival=60, seconds=30) as port, ExitStack() as stack:
        working = opened(port, WHOLE.replace(b" / ", b" /slow "), 4, stack)
        for _ in working:
            assert began.acquire(timeout=10)
        opened(port, HALF, 40, stack)
        assert status(port) == 200
        may_end.set()
        for one in working:
            assert one.recv(1000).startswith(b"HTTP/1.1 200 ")


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
                halves = opened(port, HALF, 1100, stack)
                begin = time.monotonic()
                assert status(port) == 200
                assert time.monotonic() - begin < 5
                assert max(map(closed_after, halves)) < 15
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
