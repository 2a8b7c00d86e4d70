"""A Ray cluster that this process plays: what ``Cluster.run`` uses of Ray, without processes."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from greenadapt.cluster import Cluster


class _RayError(Exception):
    pass


@dataclass
class PlayedRay:
    """A node with ``room`` cores, whose calls end when they are asked for."""

    room: int = 3
    stops: int = -1
    """The call with which Ctrl-C comes."""
    n_ended: int = 0
    n_cancelled: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    exceptions = SimpleNamespace(RayTaskError=_RayError, RayError=_RayError)

    def nodes(self) -> list[dict[str, Any]]:
        node = {"NodeID": "0", "NodeManagerAddress": "played", "Alive": True, "Resources": {"CPU": self.room}}
        return [node]

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        return lambda function: SimpleNamespace(remote=partial(partial, function))

    def wait(self, calls: Sequence[Any], timeout: float) -> tuple[Sequence[Any], Sequence[Any]]:
        return ([], calls) if self.rng.random() < 0.2 else (calls, [])

    def get(self, call: Callable[[], Any]) -> Any:
        self.n_ended += 1
        if self.n_ended == self.stops:
            raise KeyboardInterrupt
        return call()

    def cancel(self, call: Any, force: bool) -> None:
        self.n_cancelled += 1

    @contextmanager
    def connected(self, address: str) -> Iterator[Cluster]:
        """Instead of ``greenadapt.cluster.connect``."""
        yield Cluster(self)
