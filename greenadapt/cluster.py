"""A Ray cluster: connect to it, check it, and run work on its nodes with results in order.

Ray is imported when a command is told to use a cluster, not before.
"""

import math
import os
import platform
import socket
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from greenadapt.errors import (
    GreenadaptError,
    InputError,
    MissingError,
    ResourceError,
    UsageError,
    counted,
    first_line,
    require,
)

AUTO, LOCAL = "auto", "local"
_CONNECT_SECONDS = 10
_LOOPBACK = "127.0.0.1"
ATTEMPTS = 10
"""How often a call is repeated after the process or node that ran it died."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, or a part of one."""

    id: str
    address: str
    cores: float
    gpus: float
    memory: int
    """Bytes for processes."""


class Cluster:
    """A connected cluster, or some of its ``nodes``."""

    def __init__(self, ray: Any, nodes: Sequence[Node] | None = None) -> None:
        self.ray = ray
        self.nodes = alive_nodes(ray) if nodes is None else list(nodes)

    @property
    def cores(self) -> int:
        """The number of cores of all nodes together."""
        return int(sum(node.cores for node in self.nodes))

    def gpus_each(self, gpus: float | None) -> float:
        """The number of GPUs of a call that trains or predicts: ``gpus``; if it is ``None``, 1 if any node has one."""
        return float(any(node.gpus for node in self.nodes)) if gpus is None else gpus

    def lost(self) -> list[Node]:
        """The nodes that have died since the cluster was connected."""
        alive = alive_nodes(self.ray)
        return [node for node in self.nodes if node not in alive]

    def require_shared(self, folder: Path) -> None:
        """Raise ``InputError`` unless every node reads and writes ``folder`` as this process does."""
        folder.mkdir(parents=True, exist_ok=True)
        token = uuid4().hex
        probe = folder / f"shared-{token}"
        probe.write_text(token, "utf-8")
        try:
            for node, answer in self.on_each_node(_touch, str(probe), token).items():
                if answer:
                    raise InputError(
                        f"node {node.address} of the cluster cannot use {folder} ({answer})",
                        "give a --workspace on storage that all nodes share under the same path",
                    )
        finally:
            probe.unlink(missing_ok=True)

    def require_files(self, paths: Sequence[Path]) -> None:
        """Raise ``InputError`` unless every node sees each of ``paths``, with the same size as this process does."""
        expected = _sizes(paths)
        for node, sizes in self.on_each_node(_sizes, paths).items():
            for path, size, expected_size in zip(paths, sizes, expected, strict=True):
                if size != expected_size:
                    problem = "not there" if size is None else f"of {size:,} bytes, and here of {expected_size or 0:,}"
                    raise InputError(
                        f"{path} is {problem} on node {node.address} of the cluster",
                        "put it where all nodes see it under the same path",
                    )

    def on_each_node(self, function: Callable[..., Answer], *arguments: Any) -> dict[Node, Answer]:
        """Call ``function(*arguments)`` on each node; returns the answer of each node that is alive."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self.ray.remote(num_cpus=0, max_retries=ATTEMPTS)(function)
        calls = {}
        for node in self.nodes:
            only_there = NodeAffinitySchedulingStrategy(node.id, soft=False)
            calls[node] = task.options(scheduling_strategy=only_there).remote(*arguments)
        answers = {}
        for node, call in calls.items():
            try:
                answers[node] = self.get(call)
            except Exception:
                if node in alive_nodes(self.ray):
                    raise
        return answers

    def run(
        self,
        function: Callable[..., Answer],
        items: Iterable[Item],
        *arguments: Any,
        cores: float = 1,
    ) -> Iterator[Answer]:
        """Call ``function(item, *arguments)`` for each item on any node; yields the answers in the order of the items.

        Each call has ``cores`` to itself. At most twice as many calls as run at once are unfinished or wait to be
        read. A call whose node dies is repeated on another node, so a call that was interrupted must do no harm. An
        error of a call is raised here, and the other calls are cancelled.
        """
        start = self._starter(function, arguments, cores, gpus=0)
        limit = 2 * max(1, int(self.cores / max(cores, 0.1)))
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(start(item))
                if len(waiting) >= limit:
                    yield self.get(waiting.popleft())
            while waiting:
                yield self.get(waiting.popleft())
        finally:
            self._cancel(waiting)

    def as_they_end(
        self,
        function: Callable[..., Answer],
        items: Iterable[Item],
        *arguments: Any,
        cores: float = 1,
        gpus: float = 0,
        every: float = 1,
    ) -> Generator[tuple[Item, Answer | Exception] | None, None, None]:
        """Like ``run`` for all items at once; yields each item with its answer or error as soon as its call ends.

        Yields ``None`` when ``every`` seconds have passed without an answer, so that the caller can report progress.
        Raises what ``count`` raises, also once the nodes with room have died.
        """
        self.count(cores, gpus)
        start = self._starter(function, arguments, cores, gpus)
        running = {start(item): item for item in items}
        try:
            while running:
                ended, _ = self.ray.wait(list(running), timeout=every)
                for ended_call in ended:
                    try:
                        value = self.get(ended_call)
                    except Exception as error:
                        value = error
                    yield running.pop(ended_call), value
                if not ended:
                    self.count(cores, gpus)
                    yield None
        finally:
            self._cancel(running)

    def count(self, cores: float, gpus: float) -> int:
        """How many tasks of ``cores`` and ``gpus`` each fit on the nodes that are alive.

        Ray would wait forever for a node with room. Raises ``UsageError`` if no node ever had room, ``ResourceError``
        if all nodes with room died.
        """

        def room(nodes: Iterable[Node]) -> int:
            tasks = (min(node.cores // (cores or 1), node.gpus // gpus if gpus else math.inf) for node in nodes)
            return int(sum(tasks))

        n_tasks = room(alive_nodes(self.ray))
        resources = f"{cores:g} cores and {gpus:g} GPUs"
        if not n_tasks and room(self.nodes):
            raise ResourceError(
                f"all nodes of the cluster with {resources} died", "start them again, then run the same command again"
            )
        if not n_tasks:
            raise UsageError(f"no node of the cluster has {resources}", "ask for less")
        return n_tasks

    def _starter(
        self, function: Callable[..., Answer], arguments: Sequence[Any], cores: float, gpus: float
    ) -> Callable[[Any], Any]:
        """A function that starts ``function(item, *arguments)`` on a node; the arguments are sent only once."""
        task = self.ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=ATTEMPTS)(function)
        shared = [self.ray.put(argument) for argument in arguments]
        return lambda item: task.remote(item, *shared)

    def _cancel(self, calls: Iterable[Any]) -> None:
        for call in calls:
            with suppress(Exception):
                self.ray.cancel(call, force=True)

    def get(self, call: Any) -> Any:
        """The answer of a call; raises the error that it ended with."""
        try:
            return self.ray.get(call)
        except self.ray.exceptions.RayTaskError as error:
            raise_for_user(error)
            raise
        except (self.ray.exceptions.OutOfDiskError, self.ray.exceptions.OutOfMemoryError) as error:
            raise ResourceError(
                f"a node of the cluster has no more disk or memory ({first_line(error)})",
                "free some, then run the same command again",
            ) from None
        except (
            self.ray.exceptions.NodeDiedError,
            self.ray.exceptions.RayActorError,
            self.ray.exceptions.WorkerCrashedError,
        ) as error:
            raise ResourceError(
                f"work was lost {counted(ATTEMPTS, 'time')} with the nodes that did it ({first_line(error)})",
                "look at memory and logs of the nodes, then run the same command again",
            ) from None


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to the cluster at ``address``: ``host:port`` or ``ray://host:port``; ``auto`` is the cluster that
    ``RAY_ADDRESS`` names or that runs on this machine, ``local`` a new one on this machine that ends with this command.

    Raises ``MissingError`` if Ray is not installed or no cluster answers, ``UsageError`` for an invalid address,
    ``InputError`` if a node runs another version of Python, Ray or greenadapt.
    """
    ray = _import_ray(address)
    options = {"address": address, "namespace": "greenadapt", "log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        options |= {"include_dashboard": False, "_node_ip_address": _LOOPBACK}
    elif address != AUTO:
        _require_listening(address)
    try:
        ray.init(**options)
    except ray.exceptions.AuthenticationError:
        raise MissingError(
            "RAY_AUTH_MODE is token, and there is no token", "put the cluster's into ~/.ray/auth_token"
        ) from None
    except (ConnectionError, TimeoutError) as error:
        raise MissingError(
            f"no Ray cluster was found at {address}, or it asks for another token ({first_line(error)})",
            "start one with ray start --head, give its address, or use --cluster local; if it asks for a token, set "
            "RAY_AUTH_MODE=token and put the token into ~/.ray/auth_token",
        ) from None
    except RuntimeError as error:
        if "ersion mismatch" not in str(error):
            raise
        reason = " ".join(line.strip() for line in str(error).splitlines())
        raise InputError(
            f"the cluster at {address} does not run what runs here: {reason}", "install the same"
        ) from None
    try:
        cluster = Cluster(ray)
        require_same_version(cluster)
        yield cluster
    finally:
        ray.shutdown()


def raise_for_user(error: Exception) -> None:
    """Raise the cause of a call's ``error`` if it is a message for the user, such as a full disk."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, GreenadaptError | OSError):
        raise cause from None


def alive_nodes(ray: Any) -> list[Node]:
    """The nodes of the connected cluster, by address."""
    nodes = [
        Node(
            entry["NodeID"],
            entry["NodeManagerAddress"],
            entry["Resources"].get("CPU", 0),
            entry["Resources"].get("GPU", 0),
            int(entry["Resources"].get("memory", 0)),
        )
        for entry in ray.nodes()
        if entry["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.address, node.id))


def _import_ray(address: str) -> Any:
    require("cluster", "ray", by="--cluster")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no statistics for Ray's makers unless the user wants it
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # Ray prints dead nodes to standard output
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")  # to connect, one a second
    if _host(address) in (_LOOPBACK, "localhost"):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # else Ray takes the network address
    import ray

    return ray


def _host(address: str) -> str:
    return address.removeprefix("ray://").rpartition(":")[0]


def _require_listening(address: str) -> None:
    """Raise ``MissingError`` unless something listens at ``address``: Ray itself would try for minutes."""
    host, port = _host(address), address.rpartition(":")[2]
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise UsageError(f"--cluster is {address!r}, must be auto, local, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        raise MissingError(
            f"nothing answers at {address}, where --cluster expects the head of a Ray cluster ({first_line(error)})",
            "check the address, and that ray start --head runs there",
        ) from None


def require_same_version(cluster: Cluster) -> None:
    """Raise ``InputError`` if a node runs another version of Python or greenadapt than this process."""
    expected = _versions()
    try:
        answers = cluster.on_each_node(_versions)
    except cluster.ray.exceptions.RayError as error:
        raise InputError(
            f"a node of the cluster cannot run greenadapt ({str(error).splitlines()[-1]})",
            f"install greenadapt {expected['greenadapt']} on every node",
        ) from None
    for node, versions in answers.items():
        for name, version in versions.items():
            if version != expected[name]:
                raise InputError(
                    f"node {node.address} of the cluster has {name} {version}, this machine has {expected[name]}",
                    "install the same version on both",
                )


def _versions() -> Mapping[str, str]:
    from greenadapt import __version__

    return {"Python": ".".join(platform.python_version_tuple()[:2]), "greenadapt": __version__}


def _touch(path: str, token: str) -> str:
    """Why ``path`` does not hold ``token`` or its folder cannot be written; empty if neither is the case."""
    file = Path(f"{path}-{uuid4().hex}")
    try:
        if Path(path).read_text("utf-8") != token:
            return "it holds something else"
        file.write_text(token, "utf-8")
        file.unlink()
    except OSError as error:
        return error.strerror or first_line(error)
    return ""


def _sizes(paths: Sequence[Path]) -> list[int | None]:
    """The bytes of each file; 0 for a folder, ``None`` for a path that does not exist."""
    return [(path.stat().st_size if path.is_file() else 0) if path.exists() else None for path in paths]


Opening = Callable[..., Callable[[Item], Answer]]
_AHEAD = 4
"""Items per process that are under way or wait for a slower item before them."""
_PATIENCE = 10
"""Seconds without an answer after which the nodes are counted again."""


@dataclass(frozen=True)
class Spread:
    """A cluster, and the GPUs of each process on it, which has one core."""

    address: str
    gpus: float | None = None
    """``None``: 1 if the cluster has GPUs."""

    @classmethod
    def of(cls, address: str | None, gpus: float | None) -> "Spread | None":
        """The cluster at ``address``; ``None``, for this machine alone, if there is none."""
        return None if address is None else cls(address, gpus)

    def over(self, opening: Opening[Item, Answer], items: Iterable[Item], *arguments: Any) -> Iterator[Answer]:
        """Yield ``opening(*arguments)(item)`` of each item, in the order of the items; each process opens only once.

        Starts as many processes as there is work and room for; Ray restarts a process that dies. An error of ``items``
        is raised after the answers of all items before it. Raises also the errors of the opening and the calls, of
        ``connected`` and ``count``, and ``ResourceError`` if an item was lost ``ATTEMPTS`` times.
        """
        with connected(self.address) as cluster:
            gpus = cluster.gpus_each(self.gpus)
            room = cluster.count(1, gpus)
            restarts = {"max_restarts": -1, "max_task_retries": ATTEMPTS}
            kind = cluster.ray.remote(num_cpus=1, num_gpus=gpus, **restarts)(_Worker)
            start = partial(kind.remote, opening, arguments, str(Path.cwd()))
            yield from _deal(cluster, start, room, items, partial(cluster.count, 1, gpus))


class _Worker:
    """A process on a node: calls ``opening`` with its first item, and again after a restart."""

    def __init__(self, opening: Opening[Any, Any], arguments: Sequence[Any], cwd: str) -> None:
        self._opening, self._arguments, self._cwd = opening, arguments, cwd

    def do(self, item: Any) -> Any:
        return self._function(item)

    @cached_property
    def _function(self) -> Callable[[Any], Any]:
        where = f"node {socket.gethostname()} of the cluster"
        try:
            os.chdir(self._cwd)
            return self._opening(*self._arguments)
        except GreenadaptError as error:
            raise type(error)(f"{where}: {error.message}", error.hint) from None
        except OSError as error:
            raise InputError(f"{where}: {error}", "put models on storage that all nodes share") from None


def _deal(
    cluster: Cluster, start: Callable[[], Any], room: int, items: Iterable[Any], count_room: Callable[[], int]
) -> Iterator[Any]:
    """Yield the answers of processes to the items, in order; ``start`` starts a process, which has one item at a time.

    Ray restarts a process that died, on another node, and repeats its item. If ``count_room`` says that the nodes have
    no room for that, idle processes are ended to make room.
    """
    failures: list[GreenadaptError] = []
    numbered = enumerate(_until_error(iter(items), failures))
    idle: list[Any] = []
    busy: dict[Any, tuple[Any, int]] = {}
    answers: dict[int, Any] = {}
    n_yielded = 0
    while True:
        while (idle or len(busy) < room) and len(busy) + len(answers) < _AHEAD * room:
            if (entry := next(numbered, None)) is None:
                break
            number, item = entry
            process = idle.pop() if idle else start()
            busy[process.do.remote(item)] = process, number
        if not busy:
            break
        ended, _ = cluster.ray.wait(list(busy), timeout=_PATIENCE)
        for call in ended:
            process, number = busy.pop(call)
            answers[number] = cluster.get(call)
            idle.append(process)
        if not ended:
            room = min(room, count_room())
            while idle and len(idle) + len(busy) > room:
                cluster.ray.kill(idle.pop())
        while n_yielded in answers:
            yield answers.pop(n_yielded)
            n_yielded += 1
    if failures:
        raise failures[0]


def _until_error(items: Iterator[Item], failures: list[GreenadaptError]) -> Iterator[Item]:
    """Yield ``items`` up to the first error, which is added to ``failures``, since earlier answers come first."""
    try:
        yield from items
    except GreenadaptError as error:
        failures.append(error)
