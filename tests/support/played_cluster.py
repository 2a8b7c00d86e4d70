"""A cluster that this process simulates: the part of Ray that ``Spread`` uses, without processes."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any


class _Call:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


@dataclass
class PlayedCluster:
    """``room`` processes whose calls end one by one, in random order."""

    room: int = 3
    stops: int = -1
    """The call with which Ctrl-C comes."""
    n_started: int = 0
    n_ended: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @property
    def ray(self) -> "PlayedCluster":
        return self

    def gpus_each(self, gpus: float | None) -> float:
        return gpus or 0

    def count(self, cores: float, gpus: float) -> int:
        return self.room

    def remote(self, **options: Any) -> Callable[[type], Any]:
        return lambda kind: SimpleNamespace(remote=partial(self._start, kind))

    def _start(self, kind: type, *arguments: Any) -> Any:
        self.n_started += 1
        return SimpleNamespace(do=SimpleNamespace(remote=partial(_Call, kind(*arguments).do)))

    def kill(self, process: Any) -> None:
        pass

    def wait(self, calls: Sequence[_Call], timeout: float) -> tuple[list[_Call], list[_Call]]:
        if self.rng.random() < 0.2:  # nothing has ended in time
            return [], [*calls]
        chosen = self.rng.choice(calls)
        return [chosen], [call for call in calls if call is not chosen]

    def get(self, call: _Call) -> Any:
        self.n_ended += 1
        if self.n_ended == self.stops:
            raise KeyboardInterrupt
        return call.function(*call.arguments)

    @contextmanager
    def connected(self, address: str) -> Iterator["PlayedCluster"]:
        """Instead of ``greenadapt.cluster.connected``."""
        yield self
