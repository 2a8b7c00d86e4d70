"""A Ray cluster: connect to it, check it, and run work on its nodes with results in order.

Ray is imported when a command is told to use a cluster, not before.
"""

import math
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from greenadapt.errors import GreenadaptError, InputError, MissingError, ResourceError, UsageError, first_line, require

AUTO, LOCAL = "auto", "local"
_CONNECT_SECONDS = 10
_LOOPBACK = "127.0.0.1"
_EVERY = 1.0
"""Seconds of waiting for an answer after which the nodes are counted."""
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

    def gpus_each(self, gpus: float | None) -> float:
        """The number of GPUs of a call that trains or predicts: ``gpus``; if it is ``None``, 1 if any node has one."""
        return float(any(node.gpus for node in self.nodes)) if gpus is None else gpus

    def require_shared(self, folder: Path) -> None:
        """Raise ``InputError`` unless every node sees the files that this process writes to ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix="shared-") as probe:
            self.require_files([Path(probe.name)])

    def require_files(self, paths: Sequence[Path]) -> None:
        """Raise ``InputError`` unless every node sees each of ``paths``, with the same size as this process does."""
        sizes_here = _sizes(paths)
        for node, sizes in self.run_on_each_node(_sizes, paths).items():
            for path, size, size_here in zip(paths, sizes, sizes_here, strict=True):
                if size != size_here:
                    raise InputError(
                        f"node {node.address} of the cluster does not see {path} as this machine does",
                        "put the workspace, --out, models and data on storage that all nodes see under the same path",
                    )

    def run_on_each_node(self, function: Callable[..., Answer], *arguments: Any) -> dict[Node, Answer]:
        """Call ``function(*arguments)`` on each node; returns the answer of each that is alive."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self.ray.remote(num_cpus=0, max_retries=ATTEMPTS)(function)
        alive, calls = alive_nodes(self.ray), {}
        for node in filter(alive.__contains__, self.nodes):
            only_there = NodeAffinitySchedulingStrategy(node.id, soft=False)
            calls[node] = task.options(scheduling_strategy=only_there).remote(*arguments)
        return {node: self.get(call) for node, call in calls.items()}

    def run(
        self,
        function: Callable[..., Answer],
        items: Iterable[Item],
        *arguments: Any,
        gpus: float = 0,
        options: Mapping[str, Any] = {},
    ) -> Iterator[Answer]:
        """Call ``function(item, *arguments)`` for each item on any node; yields the answers in the order of the items.

        Each call has a core and ``gpus`` to itself; ``options`` are Ray's for a task. At most twice as many calls as
        run at once are unfinished or wait to be read. If a node dies, Ray repeats its calls on another one, so a call
        that was interrupted must do no harm. Raises the error of a call, or of ``items`` after the answers to all items
        before it, and what ``count`` raises; the other calls are cancelled.
        """
        limit = 2 * self.count(gpus)
        task = self.ray.remote(num_cpus=1, num_gpus=gpus, max_retries=ATTEMPTS, **options)(function)
        shared = [self.ray.put(argument) for argument in arguments]  # sent to each node once
        items, failure, waiting = iter(items), None, deque[Any]()
        try:
            while True:
                try:
                    waiting.extend(task.remote(item, *shared) for item in islice(items, limit - len(waiting)))
                except GreenadaptError as error:
                    items, failure = iter(()), error
                if not waiting:
                    break
                while not self.ray.wait([waiting[0]], timeout=_EVERY)[0]:
                    self.count(gpus)
                yield self.get(waiting.popleft())
        finally:
            for call in waiting:
                with suppress(Exception):
                    self.ray.cancel(call, force=True)
        if failure is not None:
            raise failure

    def count(self, gpus: float) -> int:
        """How many tasks of a core and ``gpus`` each fit on the nodes that are alive.

        Raises ``ResourceError`` if there is no room for any: Ray would wait forever for a node with room.
        """
        nodes = alive_nodes(self.ray)
        n_tasks = int(sum(min(node.cores // 1, node.gpus // gpus if gpus else math.inf) for node in nodes))
        if not n_tasks:
            raise ResourceError(
                f"no live node of the cluster has a core and {gpus:g} GPUs",
                "give a lower --gpus-each, or start more nodes and run the same command again",
            )
        return n_tasks

    def get(self, call: Any) -> Any:
        """The answer of a call; raises the error that it ended with, ``ResourceError`` if it was lost."""
        try:
            return self.ray.get(call)
        except self.ray.exceptions.RayTaskError as error:
            raise_for_user(error)
            raise
        except self.ray.exceptions.RayError as error:
            raise ResourceError(
                f"work was lost with the nodes that did it, after {ATTEMPTS} attempts ({first_line(error)})",
                "look at memory, disk and logs of the nodes, then run the same command again",
            ) from None


@contextmanager
def connect(address: str) -> Iterator[Cluster]:
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
    except (ConnectionError, TimeoutError, ray.exceptions.AuthenticationError) as error:
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
            f"the cluster at {address} has other versions than this machine: {reason}", "install the same versions"
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
    """Raise ``InputError`` if a node runs another version of greenadapt; Ray compares its own and Python's."""
    expected, hint = _version(), "install the same greenadapt on every node and on this machine"
    try:
        answers = cluster.run_on_each_node(_version)
    except cluster.ray.exceptions.RayError as error:
        reason = str(error).splitlines()[-1]
        raise InputError(f"a node of the cluster cannot run greenadapt ({reason})", hint) from None
    for node, version in answers.items():
        if version != expected:
            raise InputError(
                f"node {node.address} of the cluster has greenadapt {version}, this machine has {expected}", hint
            )


def _version() -> str:
    from greenadapt.version import __version__

    return __version__


def _sizes(paths: Sequence[Path]) -> list[int | None]:
    """The bytes of each file; 0 for a folder, ``None`` for a path that does not exist."""
    return [(path.stat().st_size if path.is_file() else 0) if path.exists() else None for path in paths]


@dataclass(frozen=True)
class ClusterPool:
    """Processes on the nodes of a cluster, each with one core and ``gpus``."""

    address: str
    gpus: float | None = None
    """``None``: 1 if the cluster has GPUs."""

    def map(
        self, opening: Callable[..., Callable[[Item], Answer]], items: Iterable[Item], *arguments: Any
    ) -> Iterator[Answer]:
        """Yield ``opening(*arguments)(item)`` of each item, in the order of the items; a process opens only once.

        ``arguments`` must be hashable. Raises the errors of the opening, and of ``connect`` and ``Cluster.run``.
        """
        with connect(self.address) as cluster:
            # By default Ray starts a process for each task that has a GPU, and each would open the models again.
            yield from cluster.run(
                _apply,
                items,
                opening,
                arguments,
                str(Path.cwd()),
                gpus=cluster.gpus_each(self.gpus),
                options={"max_calls": 0},
            )


def _apply(item: Any, opening: Callable[..., Any], arguments: tuple[Any, ...], cwd: str) -> Any:
    return _open_once(opening, arguments, cwd)(item)


@lru_cache(maxsize=1)
def _open_once(opening: Callable[..., Any], arguments: tuple[Any, ...], cwd: str) -> Callable[[Any], Any]:
    """What the first task of a process opened, for the tasks after it."""
    where = f"node {socket.gethostname()} of the cluster"
    try:
        os.chdir(cwd)
        return opening(*arguments)
    except GreenadaptError as error:
        raise type(error)(f"{where}: {error.message}", error.hint) from None
    except OSError as error:
        raise InputError(f"{where}: {error}", "put models on storage that all nodes share") from None
