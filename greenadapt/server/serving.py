"""The processes that serve models."""

import ipaddress
import os
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from greenadapt.config import ReadingOptions, RetrievalConfig, ServeConfig
from greenadapt.errors import ConflictError, GreenadaptError, ResourceError, UsageError, one_line
from greenadapt.inference.models import check_reading
from greenadapt.inference.search.index import Index
from greenadapt.progress import Progress
from greenadapt.server.models import ModelSource, find_models
from greenadapt.workers import end_with_parent, usable_cores

TOKEN = "GREENADAPT_SERVE_TOKEN"
"""Environment variable of the token that requests have to send."""
_MIN_TOKEN = 16
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_MAX_CONNECTIONS = 512
_SECONDS = 30
"""The longest wait for requests in progress when the server stops."""
_SECONDS_HUNG = 15
"""Seconds without an answer to the supervisor, which then replaces a worker."""


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
        if self.index is None and self.retrieval.passages is not None:
            raise UsageError("--passages is for an index, and none is given", "give --index, or leave it out")


class _Supervisor(Multiprocess):
    """Keeps workers alive; one that cannot start again is left out while others serve. SIGHUP ends the server, unless
    it is ignored as by ``nohup``.
    """

    def __init__(self, config: uvicorn.Config, listening: socket.socket, progress: Progress) -> None:
        ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        super().__init__(config, [listening])
        if ignores_hangup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._progress = progress
        self._first: list[Process] = []

    def init_processes(self) -> None:
        super().init_processes()
        self._first = [*self.processes]

    def handle_hup(self) -> None:
        self.should_exit.set()

    def keep_subprocess_alive(self) -> None:
        for worker in [*self.processes]:
            if self.should_exit.is_set() or worker.is_alive(timeout=_SECONDS_HUNG):
                continue
            worker.kill()
            worker.join()
            if worker.exitcode != STARTUP_FAILURE:
                self.processes[self.processes.index(worker)] = new = Process(self.config, self.sockets)
                new.start()
            elif worker in self._first or len(self.processes) == 1:
                self.should_exit.set()
            else:
                self.processes.remove(worker)
                n_left = len(self.processes)
                self._progress.warn(f"a worker could not start again, {n_left} of {self.processes_num} go on")


@dataclass(frozen=True)
class Application:
    """Makes the application in a worker process."""

    models: tuple[ModelSource, ...]
    request: ServeRequest

    def __call__(self) -> Any:
        """Open the models; after a failure the worker ends with an exit code that keeps it from being replaced."""
        end_with_parent()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a closed terminal: the parent ends the workers
        try:
            return self.make()
        except (GreenadaptError, OSError) as error:
            sys.stderr.write(f"greenadapt: {one_line(str(error))}\n")
        except Exception:  # such as that of a GPU without memory
            traceback.print_exc()
        raise SystemExit(STARTUP_FAILURE)

    def make(self) -> Any:
        """The ASGI application."""
        from greenadapt.server.app import Endpoints, make_app
        from greenadapt.server.models import ServedModel

        config = self.request.config
        models = [ServedModel.open(source, self.request.reading) for source in self.models]
        index = None if self.request.index is None else Index(self.request.index)
        hosts: list[str] = []
        if config.allow_hosts or is_loopback(config.host):
            hosts = [*config.allow_hosts, *_LOOPBACK, _bracket(config.host)]
        return make_app(Endpoints(models, index, self.request.retrieval), config.max_body, hosts, read_token())


def serve(request: ServeRequest, progress: Progress) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; requests in progress are finished first.

    Raises ``ConflictError`` if the port is taken, ``UsageError`` for a token that is too short, what ``find_models``
    raises, and ``ResourceError`` if a worker cannot open the models.
    """
    config = request.config
    token = read_token()
    models = find_models(request.models, request.reading, request.task)
    for model in models:
        check_reading([model.folder], request.reading)
    if request.index is not None:
        Index(request.index)
        if not any(model.folder.task.name == "qa" for model in models):
            raise UsageError("--index is for questions, and no --model answers them", "give one that does")
    with _listen(config) as listening:
        # Libraries read this variable when they are imported, which only the workers do.
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // config.workers)))
        if token is None and not is_loopback(config.host):
            progress.warn(f"anyone who reaches {config.host} may ask: set {TOKEN} to require a token")
        names, port = ", ".join(model.name for model in models), listening.getsockname()[1]
        progress.note(f"serving {names} at http://{_bracket(config.host)}:{port} (Ctrl-C stops it)")
        supervisor = _Supervisor(_uvicorn_config(Application(models, request)), listening, progress)
        supervisor.run()
    if any(worker.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        raise ResourceError("a worker could not start", "the line above says why")


def read_token() -> str | None:
    """The token, if any; raises ``UsageError`` for a token that can be guessed."""
    token = os.environ.get(TOKEN, "").strip()
    if token and (len(token) < _MIN_TOKEN or not token.isascii()):
        raise UsageError(
            f"{TOKEN} has {len(token)} characters, must have at least {_MIN_TOKEN}, all of ASCII",
            "make one with openssl rand -hex 32",
        )
    return token or None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _bracket(host: str) -> str:
    """A host as URLs have it."""
    return f"[{host}]" if ":" in host else host


def _listen(config: ServeConfig) -> socket.socket:
    try:
        family = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        raise ConflictError(
            f"cannot listen on {config.host}, port {config.port}: {error.strerror}", "give another --port or --host"
        ) from None
    listening.set_inheritable(True)
    return listening


def _uvicorn_config(app: Application) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        factory=True,
        workers=app.request.config.workers,
        log_config=None,
        log_level="error",  # anyone can cause warnings
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_SECONDS,
        timeout_worker_healthcheck=_SECONDS_HUNG,
    )
