"""What people and scripts see: results on stdout, notes and bars on stderr."""

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from greenadapt.progress import Bar, Progress

_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LOG_EVERY = 60.0  # seconds between two lines of a bar where stderr is no terminal


def make_progress(*, is_read: bool = True) -> Progress:
    """Bars that redraw themselves on a terminal; a line a minute in a log, and beside lines on the same terminal that
    are for programs, ``is_read=False``, which a bar would wrap.
    """
    return _Terminal() if sys.stderr.isatty() and (is_read or not sys.stdout.isatty()) else _Log()


def harmless(message: str) -> str:
    """``message`` without what a terminal takes as commands, which a name or an id from a file may have."""
    return _COMMANDS.sub("\ufffd", message)


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on one line of stdout; pure ASCII where stdout is not UTF-8."""
    plain = (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(value, ensure_ascii=plain) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Plain lines on stdout."""
    for line in lines:
        sys.stdout.write(line + "\n")


def print_table(title: str, columns: list[str], rows: Iterable[Iterable[object]], *, numbers: bool = True) -> None:
    """A table on stdout; columns after the first are aligned to the right where they hold ``numbers``.

    On a terminal it fits the terminal; elsewhere a row is one line, for grep and mail.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for position, column in enumerate(columns):
        table.add_column(column, justify="right" if numbers and position else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, width=None if terminal else 1000, highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:
        console.print(table)
    lines = [line.rstrip() for line in drawn.get().splitlines()]
    print_lines([*([title] if title else []), *(line for line in lines if line), ""])


class _Log:
    """Progress for logs and pipes."""

    def note(self, message: str) -> None:
        sys.stderr.write(harmless(message) + "\n")

    def warn(self, message: str) -> None:
        sys.stderr.write(f"warning: {harmless(message)}\n")

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        bar = _LogBar(label, total, unit)
        yield bar
        bar.line(ended=True)


class _LogBar:
    def __init__(self, label: str, total: float | None, unit: str) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = 0.0
        self.start = self.told = time.monotonic()
        self.facts: dict[str, str] = {}

    def advance(self, amount: float, **facts: str) -> None:
        self.done += amount
        self.facts = facts
        if time.monotonic() - self.told > _LOG_EVERY and self.done != self.total:
            self.line()

    def line(self, ended: bool = False) -> None:
        self.told = time.monotonic()
        seconds = max(self.told - self.start, 1e-9)
        share = f" of {_short(self.total)}" if self.total else ""
        facts = "".join(f", {name} {value}" for name, value in self.facts.items())
        rate = f"{_short(self.done / seconds)} {self.unit}/s"
        # The total may be an estimate: what has ended takes no longer, however much it was.
        left = (self.total - self.done) * seconds / self.done if self.total and self.done and not ended else 0
        facts += f", about {left:.0f} s left" if left >= 1 else ""
        sys.stderr.write(f"{self.label}: {_short(self.done)}{share} {self.unit} in {seconds:.0f} s ({rate}{facts})\n")


class _Terminal:
    """Progress on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def note(self, message: str) -> None:
        self.console.print(harmless(message))

    def warn(self, message: str) -> None:
        self.console.print(f"warning: {harmless(message)}", style="yellow")

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}"),
        ]
        # What is written to stdout while the bar is shown goes above it on the same terminal, else where it belongs.
        with RichProgress(
            *columns,
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            redirect_stdout=sys.stdout.isatty(),
        ) as bars:
            task = bars.add_task(label, total=total, facts="")
            start = time.monotonic()

            class Drawn:
                def advance(self, amount: float, **facts: str) -> None:
                    bars.update(task, advance=amount)
                    rate = bars.tasks[task].completed / max(time.monotonic() - start, 1e-9)
                    told = "".join(f"  {name} {value}" for name, value in facts.items())
                    bars.update(task, facts=f"{_short(rate)} {unit}/s{told}")

            yield Drawn()


def _short(number: float | None) -> str:
    """``number`` in at most four digits and a letter: 12345678 → 12.3M."""
    value = float(number or 0)
    for letter in ("", "k", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.3g}{letter}"
        value /= 1000
    return f"{value:.3g}T"
