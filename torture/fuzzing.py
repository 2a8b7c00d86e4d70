"""Many changed files through one reader, each in the same folder, and how each ended."""

import json
import os
import random
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from greenadapt.errors import GreenadaptError
from torture.mutation import PACKERS, UNPACKERS, changed_value, mutated
from torture.readers import Reader

SECONDS = 20
"""After which a reader of a small file hangs."""
MEMORY = 3 << 30
"""Bytes of addresses that a reader may take beyond what the process has."""


class Hung(BaseException):
    """A reader did not end."""


@dataclass
class Tally:
    """The outcomes of a reader's inputs, with the inputs that failed."""

    counts: Counter[str] = field(default_factory=Counter)
    bad: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Where it happened → verdict and what happened; one input of each kind."""

    def add(self, verdict: str, key: str = "", detail: str = "") -> None:
        """Count one."""
        self.counts[verdict] += 1
        if detail:
            self.bad.setdefault(f"{verdict} {key}", (verdict, detail))


def fuzz(reader: Reader, folder: Path, seed: int, n: int, at: Path | None = None) -> Tally:
    """Read ``n`` changed files of a reader; ``at`` takes the number of each, should the process die."""
    draw, tally, names = random.Random(f"{reader.name} {seed}"), Tally(), reader.names(folder)
    for i in range(n):
        name = draw.choice(names)
        original = (folder / name).read_bytes()
        content = change(name, original, draw)
        _put(folder / name, content)
        if at is not None:
            at.write_text(str(i))
        try:
            verdict, key, detail = outcome_of(reader, folder, name)
        finally:
            _put(folder / name, original)
        tally.add(verdict, key, f"{name}, input {i}: {detail}" if detail else "")
    return tally


def _put(path: Path, content: bytes) -> None:
    """Another file in the place of one that something may still have mapped."""
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


def outcome_of(reader: Reader, folder: Path, name: str) -> tuple[str, str, str]:
    """Verdict, where it happened and what happened, both empty if all is well."""
    try:
        with _limited():
            reader.read(folder, name)
    except GreenadaptError as error:
        return _message(error, name)
    except MemoryError:
        return "crashed", _location(), f"too much memory: {traceback.format_exc(limit=-2)}"
    except Hung:
        return "hung", _location(), f"over {SECONDS} s: {traceback.format_exc(limit=-3)}"
    except OSError as error:  # the command line shows it in a line, with the file
        return ("refused", "", "") if error.filename else ("unclear", repr(error), traceback.format_exc(limit=-3))
    except BaseException:  # a panic of Rust is no Exception
        return "traceback", _location(), traceback.format_exc(limit=-4)
    return "accepted", "", ""


def change(name: str, content: bytes, draw: random.Random) -> bytes:
    """A changed file; mostly what is within a packed file, and the header of a file of arrays."""
    suffix = Path(name).suffix
    if suffix in PACKERS and draw.random() < 0.7:
        return PACKERS[suffix](mutated(UNPACKERS[suffix](content), draw))
    if suffix == ".safetensors" and draw.random() < 0.8:
        length = int.from_bytes(content[:8], "little")
        changed = changed_value(json.loads(content[8 : 8 + length]), draw)
        header = json.dumps(changed).encode() if draw.random() < 0.9 else mutated(content[8 : 8 + length], draw)
        return len(header).to_bytes(8, "little") + header + content[8 + length :]
    return mutated(content, draw)


def _message(error: GreenadaptError, name: str) -> tuple[str, str, str]:
    text = str(error)
    parts = [part for part in Path(name).parts if part != "models"]
    lacks = [
        fact
        for fact, is_named in (
            ("the file", any(part in text for part in parts)),
            ("a way out", error.hint or "must be" in text),
        )
        if not is_named
    ]
    if len(text) > 3000:
        lacks.append("an end")
    if not lacks:
        return "refused", "", ""
    return "unclear", f"{_location()} {', '.join(lacks)}", f"the message lacks {' and '.join(lacks)}: {text[:500]!r}"


def _location() -> str:
    """The error's type and the last line of greenadapt in its trace."""
    import sys

    kind, _, trace = sys.exc_info()
    frames = [frame for frame in traceback.extract_tb(trace) if f"{os.sep}greenadapt{os.sep}" in frame.filename]
    last = frames[-1] if frames else None
    return f"{kind.__name__ if kind else ''} {Path(last.filename).name}:{last.lineno}" if last else str(kind)


@contextmanager
def _limited() -> Iterator[None]:
    def ended(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_memory() -> None:
    """Let this process take ``MEMORY`` more addresses, and write no core."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
