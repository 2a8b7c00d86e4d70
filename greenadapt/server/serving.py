"""Processes that serve models, their signals and limits, and connections that clients may not hold for long."""

import asyncio
import ipaddress
import logging
import os
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors import Multiprocess

from greenadapt.config import ReadingOptions, RetrievalConfig, ServeConfig
from greenadapt.errors import ConflictError, GreenadaptError, ResourceError, UsageError, one_line, require
from greenadapt.inference.models import check_reading
from greenadapt.inference.search.index import Index
from greenadapt.progress import Progress
from greenadapt.server.guard import FOLDER, TOKEN, read_token
from greenadapt.server.models import ModelSource, find_models
from greenadapt.workers import end_with_parent, usable_cores

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_HUNG = 60  # seconds without an answer to the supervisor, which then replaces a worker
_MOMENT = 0.5  # seconds
_WAITING = 2048  # connections that no worker has accepted yet
# Connections that a worker accepts at once: with more, one worker could take all clients that come together.
_ACCEPTED = 1


@dataclass(frozen=True)
class ServeRequest:
    """The models, and the options of ``serve``."""

    models: tuple[str, ...]
    config: ServeConfig
    reading: ReadingOptions
    task: str | None = None
    index: str | None = None
    """The folder of an index, for questions without a text."""
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)

    def __post_init__(self) -> None:
        passages, limit = self.retrieval.n_passages, self.config.max_queue
        if self.index is not None and passages > limit:
            raise UsageError(f"--passages is {passages} and --max-queue {limit}: no question would ever fit")
        if self.index is None and self.retrieval.passages is not None:
            require("search", "tantivy", by="a search")


@dataclass(frozen=True)
class Application:
    """Makes the application in a worker process; it has no token, so that none is written anywhere."""

    models: tuple[ModelSource, ...]
    request: ServeRequest

    def __call__(self) -> Any:
        """Open the models; after a failure the worker ends with an exit code that keeps it from being replaced."""
        end_with_parent()
        try:
            return self.make()
        except GreenadaptError as error:
            sys.stderr.write(f"greenadapt: {one_line(str(error))}\n")
        except Exception:  # such as that of a GPU without memory
            traceback.print_exc()
        raise SystemExit(STARTUP_FAILURE)

    def make(self) -> Any:
        """The ASGI application."""
        from greenadapt.server.app import Endpoints, make_app
        from greenadapt.server.guard import Guard, Metrics
        from greenadapt.server.models import ServedModel

        config, retrieval, metrics = self.request.config, self.request.retrieval, Metrics()
        models = [ServedModel.open(source, self.request.reading) for source in self.models]
        index = None if self.request.index is None else Index(self.request.index)
        app = make_app(Endpoints(models, config, metrics, index, retrieval), metrics, config.max_texts)
        keeps = config.workers == 1
        return Guard(app, metrics, config.max_seconds, config.max_body, _hosts(config), read_token(), keeps)


def serve(request: ServeRequest, progress: Progress) -> None:
    """Serve until SIGINT or SIGTERM; requests in progress are finished first.

    Raises ``ConflictError`` if the port is taken, ``UsageError`` for a token that is too short, what ``find_models``
    raises, and ``ResourceError`` if a worker cannot open the models.
    """
    config = request.config
    token = read_token()
    models = find_models(request.models, request.reading, request.task)
    for model in models:
        if model.task is not None:
            check_reading([model.task], request.reading)
    if request.index is not None:
        Index(request.index).warn_unfinished(progress)
    searches = "an index" if request.index is not None else "--passages" if request.retrieval.passages else None
    if searches and not any(model.kind == "qa" for model in models):
        raise UsageError(f"{searches} is for questions, and no --model answers them", "give one that does")
    with _listening(config) as listening, tempfile.TemporaryDirectory(prefix="greenadapt-") as counts:
        # Libraries read these variables when they are imported, which only the workers do.
        os.environ[FOLDER] = counts
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // config.workers)))
        if token is None and not is_loopback(config.host):
            progress.warn(f"anyone who reaches {config.host} may ask: set {TOKEN} to require a token")
        names = ", ".join(model.name for model in models)
        host = f"[{config.host}]" if ":" in config.host else config.host
        progress.note(f"serving {names} at http://{host}:{listening.getsockname()[1]} (Ctrl-C stops it)")
        supervisor = Multiprocess(_uvicorn(Application(models, request)), [listening])
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # of the supervisor: workers and _watch say more
        threading.Thread(target=_watch, args=(supervisor, progress), daemon=True).start()
        supervisor.run()
    if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        raise ResourceError("a worker could not start", "the line above says why")


def _watch(supervisor: Multiprocess, progress: Progress) -> None:
    """Warn when a worker is replaced, and remove its requests in progress from the metrics."""
    from prometheus_client.multiprocess import mark_process_dead

    before: list[Any] = []
    while not supervisor.should_exit.wait(_MOMENT):
        workers = list(supervisor.processes)
        for old, new in zip(before, workers, strict=False):
            if old is not new:
                mark_process_dead(old.pid)  # type: ignore[no-untyped-call]
                progress.warn(f"worker {old.pid} ended (exit code {old.exitcode}), {new.pid} takes its place")
        before = workers
        for worker in workers:
            worker.child_conn.close()  # the supervisor's copy: with it a killed worker would seem to hang
        for listening in supervisor.sockets:
            listening.listen(_WAITING)  # each worker sets it to _ACCEPTED when it starts


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _hosts(config: ServeConfig) -> Sequence[str]:
    """The host names that the server accepts; all if there are none."""
    if not (config.allow_hosts or is_loopback(config.host)):
        return ()
    return tuple(dict.fromkeys([*map(str.lower, config.allow_hosts), *_LOOPBACK, config.host.lower()]))


def _listening(config: ServeConfig) -> socket.socket:
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((config.host, config.port), family=family, backlog=_WAITING)
    except OSError as error:
        raise ConflictError(
            f"cannot listen on {config.host}, port {config.port}: {error.strerror}", "give another --port or --host"
        ) from None
    listening.set_inheritable(True)
    return listening


def _uvicorn(app: Application) -> uvicorn.Config:
    config = app.request.config
    return uvicorn.Config(
        app,
        factory=True,
        workers=config.workers,
        ws="none",
        log_config=None,
        log_level="error",  # anyone can cause warnings
        access_log=False,
        server_header=False,
        backlog=_ACCEPTED,
        http=Connection,
        limit_concurrency=most_connections(),
        timeout_graceful_shutdown=int(config.max_seconds) + 1,
        timeout_worker_healthcheck=_HUNG,
    )


_MOST = 1024
_RESERVED = 256
"""File descriptors for the files of a worker, such as models and an index."""


class Connection(H11Protocol):
    """A connection that is closed if its client takes too long.

    The headers of a request must arrive within ``ARRIVAL`` seconds of the connection, or of the last response; single
    bytes do not prolong that. Its body and the response have ``ARRIVAL`` seconds more than a request has when the
    server stops.

    With ``limit_concurrency`` connections a new one replaces the one that has waited longest for its client: for the
    rest of a request, or for the next one. Requests that have arrived are never given up.
    """

    ARRIVAL = 10.0
    """Seconds."""

    _deadline: asyncio.TimerHandle | None = None
    _began = 0.0
    """When the current deadline was set."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room, and wait for the first request."""
        if self.limit_concurrency is not None:
            self._close_oldest(len(self.connections) + 2 - self.limit_concurrency)
        super().connection_made(transport)
        self._end_after(self.ARRIVAL)

    def handle_events(self) -> None:
        """Handle the received bytes; the start of a request sets a new deadline."""
        before, limit = self.cycle, self.limit_concurrency
        if limit is not None and len(self.connections) < limit:
            # uvicorn also counts tasks of the connections that were closed to make room, which end a moment later.
            self.limit_concurrency = None
        try:
            super().handle_events()
        finally:
            self.limit_concurrency = limit
        if self.cycle is not before:
            self._end_after(self.ARRIVAL + (self.config.timeout_graceful_shutdown or 0))

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to take the answer."""
        self._end_after(self.ARRIVAL)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        """Whether it is the client's turn."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _end_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._began = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _close_oldest(self, n: int) -> None:
        if n < 1:
            return
        waiting: list[Any] = [item for item in self.connections if isinstance(item, Connection) and item._waits]
        for connection in sorted(waiting, key=lambda item: item._began)[:n]:
            self.connections.discard(connection)
            connection.transport.abort()


def most_connections() -> int:
    """The number of connections that a worker accepts; raises the soft limit of open files as needed."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return _MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = _MOST + _RESERVED
    if hard != resource.RLIM_INFINITY:
        n = min(n, hard)
    if soft != resource.RLIM_INFINITY and soft < n:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))
    return max(n - _RESERVED, n // 2)
