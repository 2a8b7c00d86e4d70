"""The frame of a campaign: parts take turns until the time is up, and every outcome is recorded at once."""

import random
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path

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


class Part:
    """A kind of attempts; it has a folder of its own and the scale of load cases."""

    def cases(self) -> Iterable[str]:
        """The cases in order; the frame repeats them, each time with new seeds."""
        raise NotImplementedError

    def once(self, case: str) -> bool:
        """Whether one attempt of a case is enough."""
        return False

    def attempt(self, case: str, seed: int) -> Iterable[Outcome]:
        """Try a case; the same seed draws the same fault or input."""
        raise NotImplementedError

    def close(self) -> None:
        """End processes and servers."""


def make_part(name: str, folder: Path, scale: float) -> Part:
    """The part of that name, with its own folder in ``folder``."""
    module, _, name_of_class = PARTS[name].partition(":")
    (folder / name).mkdir(parents=True, exist_ok=True)
    return getattr(import_module(module), name_of_class)(folder / name, scale)


class Campaign:
    """Parts that get the same time each."""

    def __init__(self, log: Log, parts: dict[str, Part], seed: int, tell: Callable[[Record], None]) -> None:
        self.log, self._parts, self._seed, self._tell = log, parts, seed, tell
        self._spent = dict.fromkeys(parts, 0.0)

    def run(self, seconds: float) -> None:
        """Run attempts until the time is up or none is left; failed ones of earlier campaigns come first."""
        end = time.monotonic() + seconds
        attempts = {name: self._attempts(name) for name in self._parts}
        while attempts and time.monotonic() < end:
            name = min(attempts, key=self._spent.__getitem__)
            case, seed = next(attempts[name], ("", 0))
            if case:
                self._attempt(name, case, seed)
            else:
                del attempts[name]

    def _attempts(self, name: str) -> Iterator[tuple[str, int]]:
        """Cases with seeds."""
        part = self._parts[name]
        cases = list(part.cases())
        failed = [record for record in self.log.last() if record.part == name and not record.outcome.is_good]
        yield from dict.fromkeys((record.case, record.seed) for record in failed if record.case in cases)
        while cases:
            for case in list(cases):
                tried = {record.seed for record in self.log.of(name, case)}
                if tried and part.once(case):
                    cases.remove(case)
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
