"""What people and scripts see: results on stdout; notes and progress bars on stderr."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from greenadapt.cli.output.layout import table, terminal_width, wrapped
from greenadapt.cli.output.messages import output, write_message
from greenadapt.cli.output.speed import Speed
from greenadapt.errors import harmless_json, one_line
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.storage.files import STDOUT, naming

_LOG_EVERY = 60.0  # seconds between two lines of a bar if stderr is not a terminal
_JSON_EVERY = 10.0  # the same for machines


def make_progress(*, is_read: bool = True) -> Progress:
    """Progress bars that redraw themselves on a terminal, or one line per minute in a log.

    Without ``is_read``, stdout has long lines for programs, so no bar is drawn between them; with --quiet there are
    only warnings, with --log-format json there are lines for machines.
    """
    if output().quiet:
        return _Quiet()
    if output().as_json:
        return _Log()
    return _Terminal() if sys.stderr.isatty() and (is_read or not sys.stdout.isatty()) else _Log()


def write_warning(message: str) -> None:
    """One line on stderr that the user should not miss, in yellow on a terminal."""
    write_message("warning", message)


def say_loading(models: Iterable[str]) -> None:
    """On a terminal, say what the wait before the first answer is for."""
    if sys.stderr.isatty() and not (output().quiet or output().as_json):
        write_message("info", f"loading {', '.join(models)}")


def warn_in_words() -> None:
    """Print warnings of libraries (``warnings.warn``) like our own."""
    import warnings

    def show(message: Warning | str, *_: object, **__: object) -> None:
        write_warning(str(message))

    warnings.showwarning = show


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line; pure ASCII if stdout is not UTF-8, and nothing that controls a terminal."""
    plain = (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    print_lines([harmless_json(json.dumps(value, ensure_ascii=plain))], styled=True)


def print_lines(lines: Iterable[str], *, styled: bool = False) -> None:
    """Print plain lines, flushed at once; names in them control no terminal and break no line, unless the lines are
    ``styled`` already.
    """
    with naming(STDOUT):
        for line in lines:
            sys.stdout.write((line if styled else one_line(line)) + "\n")
        sys.stdout.flush()  # a full disk shows here, not when Python exits


def print_text(lines: Iterable[str]) -> None:
    """Print lines for people, wrapped at spaces to the terminal's width; names in them control no terminal."""
    width = terminal_width()
    print_lines(part for line in lines for part in wrapped(one_line(line), width))


def print_table(title: str, columns: list[str], rows: Iterable[Iterable[object]], *, numbers: bool = True) -> None:
    """Print a table; columns after the first are right-aligned if they hold ``numbers``.

    On a terminal it fits the width; elsewhere each row is one line, for grep and mail.
    """
    cells = [[one_line(" ".join(str(cell).split())) for cell in row] for row in rows]
    if title:
        print_text([title])
    print_lines([*table(columns, cells, terminal_width(), numbers=numbers), ""])


class _Quiet(Silent):
    """Warnings and nothing else."""

    def warn(self, message: str) -> None:
        write_warning(message)


class _Log(_Quiet):
    """Progress for logs and pipes."""

    def note(self, message: str) -> None:
        write_message("info", message)

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        bar = _LogBar(label, total, unit)
        yield bar
        bar.line(ended=True)


class _LogBar:
    def __init__(self, label: str, total: float | None, unit: str) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0.0
        self.start = self.reported = time.monotonic()
        self.speed = Speed(self.start)
        self.facts: dict[str, str] = {}

    def advance(self, amount: float, **facts: str) -> None:
        self.done += amount
        self.facts = facts
        now = time.monotonic()
        self.speed.mark(now, self.done)
        every = _JSON_EVERY if output().as_json else _LOG_EVERY
        if now - self.reported > every and self.done != self.total:
            self.line()

    def line(self, ended: bool = False) -> None:
        self.reported = time.monotonic()
        seconds = max(self.reported - self.start, 1e-9)
        # The total may be an estimate: once more is done nobody knows it, and a finished bar has no time left.
        total = None if self.total and self.done > self.total else self.total
        share = f" of {compact(total)}" if total else ""
        facts = "".join(f", {name} {value}" for name, value in self.facts.items())
        left = self.speed.left(total - self.done) if total and not ended else None
        facts += f", about {left:.0f} s left" if left is not None and left >= 1 else ""
        speed = rate(*((self.done, seconds) if ended else self.speed.recent), self.unit)
        text = f"{self.label}: {compact(self.done)}{share} {self.unit} in {seconds:.0f} s ({speed}{facts})"
        done = int(self.done) if float(self.done).is_integer() else self.done
        numbers = {"done": done, "total": total, "unit": self.unit, "seconds": round(seconds, 3)}
        write_message("info", text, progress={"label": self.label, **numbers, "ended": ended, "facts": self.facts})


class _Terminal(_Quiet):
    """Progress on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def note(self, message: str) -> None:
        self.console.print(one_line(message))

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        from greenadapt.cli.output.bar import drawn_bar

        with drawn_bar(self.console, one_line(label), total, unit) as bar:
            yield bar


def rate(done: float, seconds: float, unit: str) -> str:
    """How fast work goes on, such as ``12.3k words/s``, or ``181 s/step`` if a unit takes longer than a second."""
    if 0 < done < seconds:
        return f"{compact(seconds / done)} s/{unit.removesuffix('s')}"
    return f"{compact(done / max(seconds, 1e-9))} {unit}/s"


def compact(number: float | None) -> str:
    """``number`` in at most four digits and a letter: 12345678 → 12.3M."""
    value = float(number or 0)
    for letter in ("", "k", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.3g}{letter}"
        value /= 1000
    return f"{value:.3g}T"
