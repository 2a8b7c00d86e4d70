"""Output for people and scripts: results on stdout; notes and progress bars on stderr."""

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Literal

from greenadapt.errors import harmless_json, one_line, time_left
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.store.files import STDOUT, naming

Level = Literal["debug", "info", "warning", "error"]
_is_quiet = _is_verbose = False


def set_messages(*, is_quiet: bool = False, is_verbose: bool = False) -> None:
    """Print only warnings and errors of the running command; or also details, the package's log records."""
    global _is_quiet, _is_verbose
    _is_quiet, _is_verbose = is_quiet, is_verbose
    if not is_verbose and "logging" not in sys.modules:
        return
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            write_message("debug", record.getMessage())

    logger = logging.getLogger("greenadapt")
    logger.handlers = [Handler()] if is_verbose else []
    logger.propagate = not is_verbose
    logger.setLevel(logging.DEBUG if is_verbose else logging.NOTSET)


def is_quiet() -> bool:
    """Whether only warnings and errors are printed."""
    return _is_quiet


def is_verbose() -> bool:
    """Whether details are printed."""
    return _is_verbose


def write_message(level: Level, message: str) -> None:
    """Write one line to stderr; a warning is yellow on a terminal."""
    line = one_line(message)
    if level == "warning":
        line = f"warning: {' '.join(line.split())}"
        line = f"\x1b[33m{line}\x1b[0m" if has_colour(sys.stderr) else line
    sys.stderr.write(f"{line}\n")


def has_colour(stream: IO[str]) -> bool:
    """Whether to write colours: on a terminal, unless ``NO_COLOR`` is set, or if ``FORCE_COLOR`` is."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


_LOG_EVERY = 60.0  # seconds between two lines of a bar if stderr is not a terminal
_ENOUGH = 20.0  # seconds after the first advance, which loads and compiles, that the time left is estimated from
_RECENT = 300.0  # seconds over which a bar on a terminal measures the speed
_ANY_WIDTH = 10_000  # columns of what is printed into a file or a pipe


def make_progress(*, is_read: bool = True) -> Progress:
    """Progress bars that redraw themselves on a terminal, or one line per minute in a log.

    Without ``is_read``, stdout has long lines for programs, so no bar is drawn between them; with --quiet there are
    only warnings.
    """
    if _is_quiet:
        return _Quiet()
    return _Terminal() if sys.stderr.isatty() and (is_read or not sys.stdout.isatty()) else _Log()


def say_loading(models: Iterable[str]) -> None:
    """On a terminal, announce that models are loading."""
    if sys.stderr.isatty() and not _is_quiet:
        write_message("info", f"loading {', '.join(models)}")


def warn_in_words() -> None:
    """Print warnings of libraries (``warnings.warn``) like our own."""
    import warnings

    def show(message: Warning | str, *_: object, **__: object) -> None:
        write_message("warning", str(message))

    warnings.showwarning = show


def print_json(*values: Mapping[str, Any]) -> None:
    """Print JSON objects, one a line; pure ASCII if stdout is not UTF-8, and nothing that controls a terminal."""
    is_ascii = (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    print_lines((harmless_json(json.dumps(value, ensure_ascii=is_ascii)) for value in values), styled=True)


def print_lines(lines: Iterable[str], *, styled: bool = False) -> None:
    """Print plain lines, flushed at once; names in them control no terminal and break no line, unless the lines are
    ``styled`` already.
    """
    with naming(STDOUT):
        for line in lines:
            sys.stdout.write((line if styled else one_line(line)) + "\n")
        sys.stdout.flush()  # a full disk shows here, not when Python exits


def print_table(title: str, columns: list[str], rows: Iterable[Iterable[object]], *, numbers: bool = True) -> None:
    """Print a table; columns after the first are right-aligned if they hold ``numbers``.

    On a terminal it fits the width; elsewhere each row is one line, for grep and mail.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, header_style="")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if numbers and number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(one_line(" ".join(str(cell).split())) for cell in row))
    width = None if sys.stdout.isatty() else _ANY_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    # Captured, since what is written to a terminal while a bar is shown there has to go above it.
    with console.capture() as drawn:
        console.print(table)
    print_lines([*([title] if title else []), *(line.rstrip() for line in drawn.get().splitlines()), ""])


class _Quiet(Silent):
    """Progress that shows only warnings."""

    def warn(self, message: str) -> None:
        write_message("warning", message)


class _Log(_Quiet):
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
        self.units = self.skipped = 0.0
        self.start = self.last_line = time.monotonic()
        self.first = (math.inf, math.inf)
        """The time and the units after the first advance."""
        self.facts: dict[str, str] = {}

    def advance(self, amount: float, **facts: str) -> None:
        self.units += amount
        self.first = min(self.first, (time.monotonic(), self.units))
        self.facts = facts
        if time.monotonic() - self.last_line > _LOG_EVERY and self.units != self.total:
            self.line()

    def skip(self, amount: float) -> None:
        self.units = self.skipped = amount

    def line(self, ended: bool = False) -> None:
        now = self.last_line = time.monotonic()
        is_measured = not ended and self.units > self.first[1] and now - self.first[0] >= _ENOUGH
        began, before = self.first if is_measured else (self.start, self.skipped)
        speed = (self.units - before) / max(now - began, 1e-9)
        # The total may be an estimate: once it is exceeded, the total is unknown.
        total = None if self.total and self.units > self.total else self.total
        facts = "".join(f", {name} {value}" for name, value in self.facts.items())
        if total and is_measured:
            facts += f", {time_left((total - self.units) / speed)}"
        of_total = f" of {compact(total)}" if total else ""
        done = f"{compact(self.units)}{of_total} {self.unit} in {now - self.start:.0f} s"
        write_message("info", f"{self.label}: {done} ({rate(speed, self.unit)}{facts})")


class _Terminal(_Quiet):
    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def note(self, message: str) -> None:
        self.console.print(one_line(message))

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        """Draw work of ``total`` units while the block runs; it stays, finished, if the block succeeds."""
        from rich import progress as rich  # takes a while

        share = rich.TaskProgressColumn() if total else rich.TextColumn(f"{{task.fields[units]}} {unit}", markup=False)
        columns = [
            rich.TextColumn("{task.description}", markup=False),
            *([rich.BarColumn()] if total else []),
            share,
            rich.TextColumn("{task.fields[facts]}", markup=False),
            rich.TimeRemainingColumn(elapsed_when_finished=True) if total else rich.TimeElapsedColumn(),
        ]
        # What is written to stdout while the bar is shown goes above it on the same terminal, else where it belongs.
        with rich.Progress(
            *columns, console=self.console, redirect_stdout=sys.stdout.isatty(), speed_estimate_period=_RECENT
        ) as bars:
            number = bars.add_task(" ".join(one_line(label).split()), total=total, facts="", units="0")
            task = bars.tasks[0]

            class Drawn:
                def advance(self, amount: float, **facts: str) -> None:
                    speed = [rate(task.speed, unit)] if task.speed else []
                    texts = [*speed, *(f"{name} {value}" for name, value in facts.items())]
                    bars.update(number, advance=amount, facts="  ".join(texts), units=compact(task.completed + amount))

                def skip(self, amount: float) -> None:
                    bars.reset(number, completed=int(amount), skipped=amount)  # no part of the speed

            yield Drawn()
            done = task.completed - task.fields.get("skipped", 0)
            bars.update(number, facts=rate(done / (task.elapsed or 1e-9), unit))
            if total is not None:  # which may have been an estimate: what has ended is done
                bars.update(number, total=task.completed)


def rate(speed: float, unit: str) -> str:
    """Units per second, such as ``12.3k words/s``, or ``181 s/step`` if a unit takes longer than a second."""
    return f"{compact(1 / speed)} s/{unit.removesuffix('s')}" if 0 < speed < 1 else f"{compact(speed)} {unit}/s"


def compact(number: float | None) -> str:
    """``number`` in at most four digits and a letter: 12345678 → 12.3M."""
    value = float(number or 0)
    for letter in ("", "k", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.3g}{letter}"
        value /= 1000
    return f"{value:.3g}T"
