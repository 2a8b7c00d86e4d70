"""The part of Ray that the training of word vectors uses, in this process; a node can die at any call."""

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    """A call was lost."""


class RayTaskError(RayError):
    """A call raised something."""


class LocalRay:
    """Actors that run calls at once; ``deaths`` has (actor, method, number of the call) at which an actor dies."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, deaths: Sequence[tuple[int, str, int]] = ()) -> None:
        self.deaths = list(deaths)
        self.actors: list[_Actor] = []

    def remote(self, **_: Any) -> Callable[[type], Any]:
        def kind(cls: type) -> Any:
            def start() -> _Actor:
                self.actors.append(_Actor(self, len(self.actors), cls()))
                return self.actors[-1]

            return SimpleNamespace(remote=start)

        return kind

    def put(self, value: Any) -> "_Reference":
        return _Reference(value)

    def get(self, reference: Any) -> Any:
        if isinstance(reference, list):
            return [self.get(item) for item in reference]
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def wait(self, references: Sequence["_Reference"], **_: Any) -> tuple[list["_Reference"], list["_Reference"]]:
        return list(references), []

    def kill(self, actor: "_Actor") -> None:
        actor.is_dead = True


class _Reference:
    def __init__(self, value: Any) -> None:
        self.value = value


class _Actor:
    def __init__(self, ray: LocalRay, number: int, instance: Any) -> None:
        self._ray, self.number, self.instance = ray, number, instance
        self.is_dead, self.calls = False, list[tuple[str, tuple[Any, ...]]]()
        self._counts = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return _Method(self, name)

    def call(self, name: str, arguments: Sequence[Any], num_returns: int) -> Any:
        result = self._call_once(name, [item.value if isinstance(item, _Reference) else item for item in arguments])
        if num_returns == 1:
            return _Reference(result)
        results = result if isinstance(result, list) else [result] * num_returns  # an error is that of all
        return [_Reference(item) for item in results]

    def _call_once(self, name: str, arguments: list[Any]) -> Any:
        self._counts[name] += 1
        if (self.number, name, self._counts[name]) in self._ray.deaths:
            self.is_dead = True
        lost = next((argument for argument in arguments if isinstance(argument, RayError)), None)
        if self.is_dead or lost is not None:
            return lost or RayError(f"actor {self.number} is dead")
        if name == "__ray_ready__":
            return True
        self.calls.append((name, tuple(arguments)))
        return getattr(self.instance, name)(*arguments)


class _Method:
    def __init__(self, actor: _Actor, name: str, num_returns: int = 1) -> None:
        self._actor, self._name, self._num_returns = actor, name, num_returns

    def options(self, num_returns: int) -> "_Method":
        return _Method(self._actor, self._name, num_returns)

    def remote(self, *arguments: Any) -> Any:
        return self._actor.call(self._name, arguments, self._num_returns)
