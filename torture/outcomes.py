"""The records of a campaign: one line of JSON for each attempt."""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

Verdict = Literal[
    # as promised
    "survived", "refused", "accepted", "done",
    # not as promised: a result or its bytes are gone; the process died; a stack trace was shown; something was read or
    # written that is none of its business; it did not end; the message does not say what to do
    "lost", "crashed", "traceback", "leaked", "hung", "unclear",
    # the attempt itself went wrong and says nothing about greenadapt
    "broken",
]  # fmt: skip
GOOD: tuple[Verdict, ...] = ("survived", "refused", "accepted", "done")
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True)
class Outcome:
    """How attempts of one case ended."""

    outcome: Verdict
    detail: str = ""
    """What happened, in a line: for a verdict that is not good, enough to find the reason."""
    n: int = 1
    """How many inputs or faults ended so."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Numbers of a load case, such as ``rss`` in bytes."""

    @property
    def is_good(self) -> bool:
        return self.outcome in GOOD


@dataclass(frozen=True)
class Record:
    """An outcome, with its part, case, seed and attempt."""

    part: str
    case: str
    """``kind/what``, such as ``kill/w2v``."""
    seed: int
    attempt: int
    """Which attempt of this case and seed, from 0: a failed one is repeated when its reason is mended."""
    outcome: Outcome
    seconds: float

    @property
    def kind(self) -> str:
        return self.case.partition("/")[0]


class Log:
    """The records in a file, which later runs append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.records = list(_read(path))
        """All, in order."""
        if self.records and not path.read_bytes().endswith(b"\n"):  # killed while it wrote its last line
            with open(path, "ab") as file:
                file.write(b"\n")

    def add(self, part: str, case: str, seed: int, outcomes: Iterable[Outcome], seconds: float) -> list[Record]:
        attempt = 1 + max((record.attempt for record in self.of(part, case) if record.seed == seed), default=-1)
        records = [Record(part, case, seed, attempt, outcome, round(seconds, 3)) for outcome in outcomes]
        with open(self._path, "a", encoding="utf-8") as file:
            for record in records:
                line = {**asdict(record), **asdict(record.outcome), "when": round(time.time())}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self.records += records
        return records

    def of(self, part: str, case: str) -> list[Record]:
        return [record for record in self.records if (record.part, record.case) == (part, case)]

    def last(self) -> list[Record]:
        """The records of the last attempt of each part, case and seed."""
        newest: dict[tuple[str, str, int], int] = {}
        for record in self.records:
            key = record.part, record.case, record.seed
            newest[key] = max(record.attempt, newest.get(key, 0))
        return [record for record in self.records if newest[record.part, record.case, record.seed] == record.attempt]


def _read(path: Path) -> Iterator[Record]:
    if not path.is_file():
        return
    for line in path.read_text("utf-8").splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        values.pop("when")
        fields = {name: values.pop(name) for name in ("part", "case", "seed", "attempt", "seconds")}
        yield Record(outcome=Outcome(**values), **fields)
