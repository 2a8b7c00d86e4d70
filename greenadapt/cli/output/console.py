"""Output for people and scripts: results on stdout; notes and progress bars on stderr."""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Literal

from greenadapt.errors import harmless_json, one_line
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.store.files import STDOUT, naming

_GAP = "  "


def terminal_width() -> int | None:
    """Width of the terminal in columns; ``None`` if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, *, numbers: bool) -> list[str]:
    """A table of at most ``width`` columns: each row is a line, or if too wide a block with a line per cell.

    The first column is aligned to the left, the others to the right if they hold ``numbers``.
    """
    from rich.cells import cell_len

    cells = [columns, *rows]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(columns))]
    total = sum(widths) + len(_GAP) * (len(widths) - 1)
    if width is not None and total + 1 > width:
        return [line for row in rows for line in _block(columns, row, width)]

    def line(row: Sequence[str]) -> str:
        padded = [
            " " * (most - cell_len(cell)) + cell if numbers and i else cell + " " * (most - cell_len(cell))
            for i, (cell, most) in enumerate(zip(row, widths, strict=True))
        ]
        return f" {_GAP.join(padded)}".rstrip()

    return [line(columns), f" {'─' * total}", *map(line, rows)]


def wrapped(text: str, width: int | None) -> list[str]:
    """``text`` in equally indented lines of at most ``width`` columns, broken only at spaces: paths can be copied."""
    start = text[: len(text) - len(text.lstrip())]
    return hanging(start, text.removeprefix(start), width)


def hanging(first: str, text: str, width: int | None) -> list[str]:
    """``first`` and ``text`` in lines of at most ``width`` columns, the later ones indented as wide as ``first``."""
    from rich.cells import cell_len

    if width is None or cell_len(first + text) <= width:
        return [first + text]
    words = text.split() or [""]
    lines = [first + words[0]]
    for word in words[1:]:
        if cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(" " * len(first) + word)
    return lines


def _block(columns: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """A row as its first cell, and a line for each further cell that is not empty."""
    names = max(map(len, columns[1:]), default=0)
    lines = wrapped(f" {row[0] or '-'}", width)
    for name, cell in zip(columns[1:], row[1:], strict=True):
        lines += hanging(f"   {name.ljust(names)}{_GAP}", cell, width) if cell else []
    return lines


Level = Literal["debug", "info", "warning", "error"]
_is_quiet = False


def set_quiet(is_quiet: bool) -> None:
    """Print only warnings and errors of the running command, or all messages."""
    global _is_quiet
    _is_quiet = is_quiet


def is_quiet() -> bool:
    """Whether only warnings and errors are printed."""
    return _is_quiet


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


def show_details() -> None:
    """Write the package's log records (``logging``) as messages, for ``--verbose``."""
    import logging

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            write_message("debug", record.getMessage())

    logger = logging.getLogger("greenadapt")
    logger.handlers = [Handler()]
    logger.propagate = False
    logger.setLevel(logging.DEBUG)


def hide_details() -> None:
    """Undo ``show_details``, if an earlier command in this process was verbose."""
    if logging := sys.modules.get("logging"):
        logger = logging.getLogger("greenadapt")
        logger.handlers, logger.propagate = [], True
        logger.setLevel(logging.NOTSET)


_RECENT = 60.0
"""Seconds over which the speed is measured."""
_APART = 1.0
"""Seconds between two marks."""


class Speed:
    """The speed of work over the last minute, or over the last step if that took longer."""

    def __init__(self, start: float) -> None:
        """Start the work at ``start``, in seconds of any clock."""
        self._marks = [(start, 0.0)]
        """(time, finished units) in the last minute, and the last mark before it."""

    def mark(self, seconds: float, units: float) -> None:
        """Record that ``units`` in all are finished at ``seconds`` of the clock."""
        if len(self._marks) > 2 and self._marks[-1][0] - self._marks[-2][0] < _APART:
            self._marks.pop()
        self._marks.append((seconds, units))
        while len(self._marks) > 2 and seconds - self._marks[1][0] >= _RECENT:
            self._marks.pop(0)

    @property
    def recent(self) -> tuple[float, float]:
        """The number of recent units, and their seconds."""
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return last - first, end - start

    def seconds_of(self, units: float) -> float | None:
        """The seconds that ``units`` take at this speed; ``None`` if it is unknown."""
        recent, seconds = self.recent
        return units * seconds / recent if recent > 0 and seconds > 0 else None


_LOG_EVERY = 60.0  # seconds between two lines of a bar if stderr is not a terminal


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
        self.units = 0.0
        self.start = self.reported = time.monotonic()
        self.speed = Speed(self.start)
        self.facts: dict[str, str] = {}

    def advance(self, amount: float, **facts: str) -> None:
        self.units += amount
        self.facts = facts
        seconds = time.monotonic()
        self.speed.mark(seconds, self.units)
        if seconds - self.reported > _LOG_EVERY and self.units != self.total:
            self.line()

    def line(self, ended: bool = False) -> None:
        self.reported = time.monotonic()
        seconds = max(self.reported - self.start, 1e-9)
        # The total may be an estimate: once it is exceeded, the total is unknown.
        total = None if self.total and self.units > self.total else self.total
        share = f" of {compact(total)}" if total else ""
        facts = "".join(f", {name} {value}" for name, value in self.facts.items())
        remaining = self.speed.seconds_of(total - self.units) if total and not ended else None
        facts += f", about {remaining:.0f} s left" if remaining is not None and remaining >= 1 else ""
        speed = rate(*((self.units, seconds) if ended else self.speed.recent), self.unit)
        text = f"{self.label}: {compact(self.units)}{share} {self.unit} in {seconds:.0f} s ({speed}{facts})"
        write_message("info", text)


class _Terminal(_Quiet):
    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def note(self, message: str) -> None:
        self.console.print(one_line(message))

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        from greenadapt.cli.output.bars import drawn_bar

        with drawn_bar(self.console, one_line(label), total, unit) as bar:
            yield bar


def rate(units: float, seconds: float, unit: str) -> str:
    """The speed of work, such as ``12.3k words/s``, or ``181 s/step`` if a unit takes longer than a second."""
    if 0 < units < seconds:
        return f"{compact(seconds / units)} s/{unit.removesuffix('s')}"
    return f"{compact(units / max(seconds, 1e-9))} {unit}/s"


def compact(number: float | None) -> str:
    """``number`` in at most four digits and a letter: 12345678 → 12.3M."""
    value = float(number or 0)
    for letter in ("", "k", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.3g}{letter}"
        value /= 1000
    return f"{value:.3g}T"
