"""A Ray cluster: connect to it, check it, and run work on its nodes with results in order.

Ray is imported when a command is told to use a cluster, not before.
"""

import math
import os
import platform
import shlex
import socket
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from greenadapt.errors import GreenadaptError, InputError, MissingError, ResourceError, UsageError, first_line, require

AUTO, LOCAL = "auto", "local"
COMMAND = "command"
"""Under this name the cluster knows the command line of a program that uses it."""
_CONNECT_SECONDS = 10
_LOOPBACK = "127.0.0.1"
ATTEMPTS = 10
"""How often work is given to another node after the one that had it died."""

Item = TypeVar("Item")
Made = TypeVar("Made")


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
        """Of all nodes together."""
        return int(sum(node.cores for node in self.nodes))

    def gpus_each(self, asked: float | None) -> float:
        """The GPUs of a call that trains or predicts: as ``asked``, else one if any node has one."""
        return float(any(node.gpus for node in self.nodes)) if asked is None else asked

    def lost(self) -> list[Node]:
        """The nodes that have died since this was connected."""
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
        here = _sizes(paths)
        for node, sizes in self.on_each_node(_sizes, paths).items():
            for path, there, size in zip(paths, sizes, here, strict=True):
                if there != size:
                    found = "not there" if there is None else f"of {there:,} bytes, and here of {size or 0:,}"
                    raise InputError(
                        f"{path} is {found} on node {node.address} of the cluster",
                        "put it where all nodes see it under the same path",
                    )

    def on_each_node(self, function: Callable[..., Made], *arguments: Any) -> dict[Node, Made]:
        """What ``function(*arguments)`` returns on each node; those that have died are left out."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self.ray.remote(num_cpus=0, max_retries=ATTEMPTS)(function)
        given = {
            node: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(
                *arguments
            )
            for node in self.nodes
        }
        answers = {}
        for node, made in given.items():
            try:
                answers[node] = self.get(made)
            except Exception:
                if node in alive_nodes(self.ray):
                    raise
        return answers

    def run(
        self,
        function: Callable[..., Made],
        items: Iterable[Item],
        *arguments: Any,
        cores: float = 1,
    ) -> Iterator[Made]:
        """``function(item, *arguments)`` of each item, on any node, in the order of the items.

        Each call has ``cores`` to itself. At most twice as many calls as run at once are unfinished or wait to be
        read. A call whose node dies is made again elsewhere, so it must not matter if it was half done. What a call
        raises is raised here, and the others are cancelled.
        """
        call = self._calls(function, arguments, cores, gpus=0)
        limit = 2 * max(1, int(self.cores / max(cores, 0.1)))
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(call(item))
                if len(waiting) >= limit:
                    yield self.get(waiting.popleft())
            while waiting:
                yield self.get(waiting.popleft())
        finally:
            self._cancel(waiting)

    def as_they_end(
        self,
        function: Callable[..., Made],
        items: Iterable[Item],
        *arguments: Any,
        cores: float = 1,
        gpus: float = 0,
        every: float = 1,
    ) -> Generator[tuple[Item, Made | Exception] | None, None, None]:
        """The same for all items at once, each as soon as it ends: the item and what the call returned or raised.

        ``None`` comes when ``every`` seconds have passed without one, so that the caller can look at what is under way.
        Raises what ``count`` raises, also once the nodes with room have died.
        """
        self.count(cores, gpus)
        call = self._calls(function, arguments, cores, gpus)
        running = {call(item): item for item in items}
        try:
            while running:
                ended, _ = self.ray.wait(list(running), timeout=every)
                for made in ended:
                    try:
                        value = self.get(made)
                    except Exception as error:
                        value = error
                    yield running.pop(made), value
                if not ended:
                    self.count(cores, gpus)
                    yield None
        finally:
            self._cancel(running)

    def count(self, cores: float, gpus: float) -> int:
        """How many tasks with so many ``cores`` and ``gpus`` the nodes that are alive have room for.

        If there is none, Ray would wait for such a node: raises ``UsageError`` or, if those that had room died,
        ``ResourceError``.
        """

        def room(nodes: Iterable[Node]) -> int:
            each = (min(one.cores // (cores or 1), one.gpus // gpus if gpus else math.inf) for one in nodes)
            return int(sum(each))

        found = room(alive_nodes(self.ray))
        what = f"{cores:g} cores and {gpus:g} GPUs"
        if not found and room(self.nodes):
            raise ResourceError(
                f"all nodes of the cluster with {what} died", "start them again, then run the same command again"
            )
        if not found:
            raise UsageError(f"no node of the cluster has {what}", "ask for less")
        return found

    def _calls(
        self, function: Callable[..., Made], arguments: Sequence[Any], cores: float, gpus: float
    ) -> Callable[[Any], Any]:
        """Begins ``function(item, *arguments)`` on a node; the arguments are sent there once."""
        task = self.ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=ATTEMPTS)(function)
        shared = [self.ray.put(argument) for argument in arguments]
        return lambda item: task.remote(item, *shared)

    def _cancel(self, running: Iterable[Any]) -> None:
        for made in running:
            with suppress(Exception):
                self.ray.cancel(made, force=True)

    def get(self, made: Any) -> Any:
        """What a call returned; raises what it raised."""
        try:
            return self.ray.get(made)
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
                f"work was lost {ATTEMPTS} times with the nodes that did it ({first_line(error)})",
                "look at memory and logs of the nodes, then run the same command again",
            ) from None


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """The cluster at ``address``: ``host:port`` or ``ray://host:port``, ``auto`` for one that runs here or that
    ``RAY_ADDRESS`` names, ``local`` for one on this machine that ends with this command.

    Raises ``MissingError`` if Ray is not installed or no cluster is there, ``UsageError`` for something else than an
    address, ``InputError`` if a node runs another version of Python, Ray or greenadapt.
    """
    ray = _import_ray(address)
    options = {"address": address, "namespace": "greenadapt", "log_to_driver": False, "logging_level": "ERROR"}
    if not address.startswith("ray://"):  # where it cannot be passed
        options["job_config"] = ray.job_config.JobConfig(metadata={COMMAND: _command()})
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
        said = " ".join(line.strip() for line in str(error).splitlines())
        raise InputError(f"the cluster at {address} does not run what runs here: {said}", "install the same") from None
    try:
        cluster = Cluster(ray)
        require_same_version(cluster)
        yield cluster
    finally:
        ray.shutdown()


def running_address() -> str | None:
    """The address in ``RAY_ADDRESS``, else of the cluster that was last started here, if it answers.

    Ray is not imported.
    """
    if address := os.environ.get("RAY_ADDRESS"):
        return address
    folder = os.environ.get("RAY_TMPDIR") or (sys.platform == "linux" and os.environ.get("TMPDIR")) or "/tmp"
    with suppress(OSError, UsageError, MissingError):
        address = Path(folder, "ray", "ray_current_cluster").read_text("utf-8").strip()
        _require_listening(address)
        return address
    return None


def raise_for_user(error: Exception) -> None:
    """Raise what a call on a node raised, if it is for the user to read, such as that a disk is full."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, GreenadaptError | OSError):
        raise cause from None


def alive_nodes(ray: Any) -> list[Node]:
    """The nodes of the connected cluster, by address."""
    nodes = [
        Node(
            each["NodeID"],
            each["NodeManagerAddress"],
            each["Resources"].get("CPU", 0),
            each["Resources"].get("GPU", 0),
            int(each["Resources"].get("memory", 0)),
        )
        for each in ray.nodes()
        if each["Alive"]
    ]
    return sorted(nodes, key=lambda node: (node.address, node.id))


def _import_ray(address: str) -> Any:
    require("cluster", "ray", by="--cluster")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers unless the user says so
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # what Ray says of dead nodes it writes to standard output
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")  # to connect, one a second: what listens is there
    if _host(address) in (_LOOPBACK, "localhost"):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # else Ray takes the network address instead
    import ray

    return ray


def _command() -> str:
    """The command line, as it was typed or nearly so."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return shlex.join([name, *sys.argv[1:]])


def _host(address: str) -> str:
    return address.removeprefix("ray://").rpartition(":")[0]


def _require_listening(address: str) -> None:
    """Ray itself tries for minutes, so look first whether anything listens there."""
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
    here = _versions()
    try:
        found = cluster.on_each_node(_versions)
    except cluster.ray.exceptions.RayError as error:
        raise InputError(
            f"a node of the cluster cannot run greenadapt ({str(error).splitlines()[-1]})",
            f"install greenadapt {here['greenadapt']} on every node",
        ) from None
    for node, versions in found.items():
        for name, version in versions.items():
            if version != here[name]:
                raise InputError(
                    f"node {node.address} of the cluster has {name} {version}, this machine has {here[name]}",
                    "install the same version on both",
                )


def _versions() -> Mapping[str, str]:
    from greenadapt import __version__

    return {"Python": ".".join(platform.python_version_tuple()[:2]), "greenadapt": __version__}


def _touch(path: str, token: str) -> str:
    """Why ``path`` does not hold ``token``, or its folder cannot be written; empty if all is well."""
    own = Path(f"{path}-{uuid4().hex}")
    try:
        if Path(path).read_text("utf-8") != token:
            return "it holds something else"
        own.write_text(token, "utf-8")
        own.unlink()
    except OSError as error:
        return error.strerror or first_line(error)
    return ""


def _sizes(paths: Sequence[Path]) -> list[int | None]:
    """The bytes of each file, 0 for a folder; ``None`` if it is not there."""
    return [(path.stat().st_size if path.is_file() else 0) if path.exists() else None for path in paths]


Opening = Callable[..., Callable[[Item], Made]]
_AHEAD = 4
"""Items a process that are read before they are wanted: what comes late holds up what follows it."""
_PATIENCE = 10
"""Seconds without an answer after which it is looked whether there is still a node to wait for."""


class Chosen(Protocol):
    """Options of a command, or the session made of them."""

    @property
    def cluster(self) -> str | None: ...
    @property
    def cores_each(self) -> int: ...
    @property
    def gpus_each(self) -> float | None: ...


@dataclass(frozen=True)
class Spread:
    """Where work is done, and what each process gets."""

    address: str
    cores: int = 1
    gpus: float | None = None
    """``None``: 1 if the cluster has GPUs."""

    @classmethod
    def of(cls, options: "Chosen") -> "Spread | None":
        """What the user chose; ``None`` for this machine alone."""
        return None if options.cluster is None else cls(options.cluster, options.cores_each, options.gpus_each)

    def over(self, opening: "Opening[Item, Made]", items: Iterable[Item], *arguments: Any) -> Iterator[Made]:
        """``opening(*arguments)(item)`` of each item, in the order of the items; each process opens only once.

        As many processes are started as there is work and room for; Ray starts again one that dies. If ``items``
        raises, so does this, after all before. Raises what opening and the calls raise, what ``connected`` and
        ``count`` raise, and ``ResourceError`` if an item was lost time and again.
        """
        with connected(self.address) as cluster:
            gpus = cluster.gpus_each(self.gpus)
            room = cluster.count(self.cores, gpus)
            restarts = {"max_restarts": -1, "max_task_retries": ATTEMPTS}
            kind = cluster.ray.remote(num_cpus=self.cores, num_gpus=gpus, **restarts)(_Process)
            start = partial(kind.remote, opening, arguments, str(Path.cwd()))
            yield from _deal(cluster, start, room, items, partial(cluster.count, self.cores, gpus))


class _Process:
    """Opens something with the first item, also after Ray started it again, and then works with it."""

    def __init__(self, opening: "Opening[Any, Any]", arguments: Sequence[Any], cwd: str) -> None:
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
    """What processes make of the items, in order; ``start`` starts one, which works on one item at a time.

    A process that died gets its item again when Ray starts it elsewhere. If the nodes that are left have no room for
    that, which ``count_room`` tells, others end as soon as there is nothing for them to do but wait for that item.
    """
    failures: list[GreenadaptError] = []
    numbered = enumerate(_until_error(iter(items), failures))
    idle: list[Any] = []
    busy: dict[Any, tuple[Any, int]] = {}
    done: dict[int, Any] = {}
    out = 0
    while True:
        while (idle or len(busy) < room) and len(busy) + len(done) < _AHEAD * room and (new := next(numbered, None)):
            process = idle.pop() if idle else start()
            busy[process.do.remote(new[1])] = process, new[0]
        if not busy:
            break
        ended, _ = cluster.ray.wait(list(busy), timeout=_PATIENCE)
        for made in ended:
            process, number = busy.pop(made)
            done[number] = cluster.get(made)
            idle.append(process)
        if not ended:
            room = min(room, count_room())
            while idle and len(idle) + len(busy) > room:
                cluster.ray.kill(idle.pop())
        while out in done:
            yield done.pop(out)
            out += 1
    if failures:
        raise failures[0]


def _until_error(items: Iterator[Item], failures: list[GreenadaptError]) -> Iterator[Item]:
    """``items`` up to the first that cannot be made; the error is kept, since what is before it comes first."""
    try:
        yield from items
    except GreenadaptError as error:
        failures.append(error)
