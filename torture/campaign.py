"""The frame of a campaign: parts take turns until the time is up, and every outcome is recorded at once."""

import random
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol

from torture.outcomes import Log, Outcome, Record

PARTS = {
    "faults": "torture.faults:Faults",
    "inputs": "torture.inputs:Inputs",
    "downloads": "torture.downloads:Downloads",
    "uploads": "torture.uploads:Uploads",
    "concurrency": "torture.concurrency:Concurrency",
    "load": "torture.load:Load",
}
"""Name → module and class."""


class Part(Protocol):
    """Something that is tried again and again; made with a folder of its own and the scale of load cases."""

    def cases(self) -> Iterable[str]:
        """What to try, in order; the frame begins again with the first, each time with new seeds."""
        ...

    def once(self, case: str) -> bool:
        """Whether one attempt of a case is enough."""
        ...

    def attempt(self, case: str, seed: int) -> Iterable[Outcome]:
        """Try a case; the same seed draws the same fault or input."""
        ...

    def close(self) -> None:
        """End processes and servers."""
        ...


def make_part(name: str, folder: Path, scale: float) -> Part:
    """The part of that name, with its own folder in ``folder``."""
    module, _, what = PARTS[name].partition(":")
    (folder / name).mkdir(parents=True, exist_ok=True)
    made: Part = getattr(import_module(module), what)(folder / name, scale)
    return made


class Campaign:
    """Parts of which each gets the same time."""

    def __init__(self, log: Log, parts: dict[str, Part], seed: int, tell: Callable[[Record], None]) -> None:
        self.log, self._parts, self._seed, self._tell = log, parts, seed, tell
        self._spent = dict.fromkeys(parts, 0.0)

    def run(self, seconds: float) -> None:
        """Try until the time is up or nothing is left; first, again, what failed before."""
        end = time.monotonic() + seconds
        left = {name: self._attempts(name) for name in self._parts}
        while left and time.monotonic() < end:
            name = min(left, key=self._spent.__getitem__)
            case, seed = next(left[name], ("", 0))
            if case:
                self._attempt(name, case, seed)
            else:
                del left[name]

    def _attempts(self, name: str) -> Iterator[tuple[str, int]]:
        """Cases with seeds."""
        part = self._parts[name]
        known = list(part.cases())
        failed = [each for each in self.log.last() if each.part == name and not each.outcome.is_good]
        yield from dict.fromkeys((each.case, each.seed) for each in failed if each.case in known)
        while known:
            for case in list(known):
                tried = {each.seed for each in self.log.of(name, case)}
                if tried and part.once(case):
                    known.remove(case)
                    continue
                yield case, self._new_seed(name, case, tried)

    def _new_seed(self, name: str, case: str, tried: set[int]) -> int:
        draw = random.Random(f"{self._seed} {name} {case}")
        while (seed := draw.randrange(1 << 32)) in tried:
            pass
        return seed

    def _attempt(self, name: str, case: str, seed: int) -> None:
        start = time.monotonic()
        try:
            outcomes = list(self._parts[name].attempt(case, seed))
        except Exception:
            outcomes = [Outcome("broken", traceback.format_exc(limit=-4))]
        seconds = time.monotonic() - start
        self._spent[name] += seconds
        for record in self.log.add(name, case, seed, outcomes, seconds):
            self._tell(record)
