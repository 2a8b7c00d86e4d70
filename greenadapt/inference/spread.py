"""Work with opened models, spread over the nodes of a cluster: what is made comes back in order, each once."""

import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from greenadapt.cluster import ATTEMPTS, Cluster, connected, lost
from greenadapt.errors import GreenadaptError, InputError

Item = TypeVar("Item")
Made = TypeVar("Made")
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

        As many processes are started as there is work and room for, and one that dies is replaced. If ``items`` raises,
        so does this, after all before. Raises what opening and the calls raise, what ``connected`` and ``count`` raise,
        and ``ResourceError`` if an item was lost time and again.
        """
        with connected(self.address) as cluster:
            gpus = cluster.gpus_each(self.gpus)
            room = cluster.count(self.cores, gpus)
            kind = cluster.ray.remote(num_cpus=self.cores, num_gpus=gpus, max_restarts=0)(_Process)

            def start() -> tuple[Any, Any]:
                process = kind.remote()
                return process, process.open.remote(opening, arguments, str(Path.cwd()))

            dealing = _Dealing(cluster, start, room, partial(cluster.count, self.cores, gpus))
            yield from dealing.deal(iter(items))


class _Process:
    """Opens something, and then works with it."""

    def open(self, opening: "Opening[Any, Any]", arguments: Sequence[Any], cwd: str) -> None:
        where = f"node {socket.gethostname()} of the cluster"
        try:
            os.chdir(cwd)
            self._function = opening(*arguments)
        except GreenadaptError as error:
            raise type(error)(f"{where}: {error.message}", error.hint) from None
        except OSError as error:
            raise InputError(f"{where}: {error}", "put models on storage that all nodes share") from None

    def do(self, item: Any) -> Any:
        return self._function(item)


@dataclass
class _Dealing:
    """Items given to processes, of which one works on one item at a time."""

    cluster: Cluster
    start: Callable[[], tuple[Any, Any]]
    """Starts a process; it, and what says when it is open."""
    room: int
    require_room: Callable[[], object]
    """Raises ``ResourceError`` if no node is left that a process could start on."""
    n_started: int = 0
    idle: list[Any] = field(default_factory=list)
    busy: dict[Any, tuple[Any, int | None]] = field(default_factory=dict)
    """What is under way → the process, and the number of the item; ``None`` while it opens."""
    given: dict[int, Any] = field(default_factory=dict)
    """Items that are not done, by number."""
    waiting: deque[int] = field(default_factory=deque)
    """Those of them that no process has."""
    done: dict[int, Any] = field(default_factory=dict)
    """What waits for what comes before it."""
    losses: Counter[int | None] = field(default_factory=Counter)

    def deal(self, items: Iterator[Any]) -> Iterator[Any]:
        """What is made of each item, in order."""
        failures: list[GreenadaptError] = []
        numbered, out = enumerate(_until_error(items, failures)), 0
        while True:
            for number, item in islice(numbered, _AHEAD * self.room - len(self.given) - len(self.done)):
                self.given[number] = item
                self.waiting.append(number)
            if not self.given:
                break
            self._work()
            while out in self.done:
                yield self.done.pop(out)
                out += 1
        if failures:
            raise failures[0]

    def _work(self) -> None:
        """Until one more item is done, or a process opened or lost."""
        if len(self.waiting) > len(self.idle) and self.n_started < self.room:
            for _ in range(min(len(self.waiting) - len(self.idle), self.room - self.n_started)):
                self._start()
        while self.idle and self.waiting:
            process, number = self.idle.pop(), self.waiting.popleft()
            self.busy[process.do.remote(self.given[number])] = process, number
        made = self._next_done()
        process, of = self.busy.pop(made)
        try:
            value = self.cluster.get(made)
        except self.cluster.ray.exceptions.RayActorError as error:
            self.losses[of] += 1
            if self.losses[of] == ATTEMPTS:
                raise lost(error) from None
            if of is not None:
                self.waiting.appendleft(of)
            self._start()  # it waits for room, if there is none left
            return
        self.idle.append(process)
        if of is not None:
            self.done[of] = value
            del self.given[of]

    def _next_done(self) -> Any:
        while not (done := self.cluster.ray.wait(list(self.busy), timeout=_PATIENCE)[0]):
            self.require_room()
        return done[0]

    def _start(self) -> None:
        process, opened = self.start()
        self.busy[opened] = process, None
        self.n_started += 1


def _until_error(items: Iterator[Item], failures: list[GreenadaptError]) -> Iterator[Item]:
    """``items`` up to the first that cannot be made; the error is kept, since what is before it comes first."""
    try:
        yield from items
    except GreenadaptError as error:
        failures.append(error)
