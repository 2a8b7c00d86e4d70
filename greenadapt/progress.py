"""Progress reports of long work, and how a signal or a time limit stops it cleanly."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol, runtime_checkable


class Bar(Protocol):
    """The progress of a task with a known unit."""

    def advance(self, amount: float, **facts: str) -> None:
        """Count ``amount`` more units as done, and show ``facts`` (such as ``lr="0.021"``) beside the bar."""

    def skip(self, amount: float) -> None:
        """Count ``amount`` units that an earlier run did."""


@runtime_checkable
class Progress(Protocol):
    """Where notes and bars go: stderr under the command line, nowhere in a library call."""

    def note(self, message: str) -> None:
        """Show a line of information."""

    def warn(self, message: str) -> None:
        """Show a warning of one line."""

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        """Show a bar for ``total`` units (``None``: unknown) named ``unit``, such as ``"words"`` or ``"bytes"``."""


class PrefixedProgress:
    """A ``Progress`` that prefixes notes and warnings with a name."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._name = name

    def note(self, message: str) -> None:
        self._progress.note(f"{self._name}: {message}")

    def warn(self, message: str) -> None:
        self._progress.warn(f"{self._name}: {message}")

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        with self._progress.bar(f"{self._name}, {label}", total, unit) as bar:
            yield bar


class Silent:
    """A ``Progress`` that shows nothing, and its own ``Bar``."""

    def note(self, message: str) -> None:
        pass

    def warn(self, message: str) -> None:
        pass

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        yield self

    def advance(self, amount: float, **facts: str) -> None:
        pass

    def skip(self, amount: float) -> None:
        pass


class Messages(Silent):
    """A ``Progress`` that collects the messages of another process: ``note`` or ``warn``, and the text."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    def note(self, message: str) -> None:
        self.messages.append(("note", message))

    def warn(self, message: str) -> None:
        self.messages.append(("warn", message))


def repeat(messages: Iterable[tuple[str, str]], shown: set[tuple[str, str]], progress: Progress) -> None:
    """Show those ``Messages`` that are not ``shown`` yet."""
    for kind, text in messages:
        if (kind, text) not in shown:
            shown.add((kind, text))
            (progress.warn if kind == "warn" else progress.note)(text)


TIME_UP = 75
"""Exit code of a command that reached its time limit, EX_TEMPFAIL of sysexits.h: run it again."""
ALARM: int = signal.SIGALRM
"""The signal of the time limit."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ALARM_INTERVAL = 2.0
"""Seconds between attempts to exit: Python drops an exception that a signal handler raises in a ``__del__``."""
_time_was_up = False


class Stop:
    """A request to stop: ``signal`` is its signal, ``ALARM`` for the time limit, 0 without a request."""

    def __init__(self) -> None:
        self.signal = ALARM if _time_was_up else 0

    @property
    def is_requested(self) -> bool:
        """Whether to save and exit now."""
        return self.signal != 0

    def synchronize(self, gather_max: Callable[[int], int]) -> None:
        """Make all processes stop at the same step; ``gather_max`` is ``Machine.gather_max``. Call it once per step."""
        self.signal = gather_max(self.signal)

    def raise_if_requested(self) -> None:
        """If a stop is requested, raise ``KeyboardInterrupt`` for SIGINT, else ``SystemExit`` with ``TIME_UP`` for the
        time limit or 143 for SIGTERM.
        """
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.is_requested:
            raise SystemExit(TIME_UP if self.signal == ALARM else 128 + self.signal)


@contextmanager
def handle_signals() -> Iterator[Stop]:
    """Turn the first SIGINT or SIGTERM, or the time limit, into a request to stop; a second signal acts as usual.

    Has no effect in threads other than the main one, where Python handles no signals.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    timed = (ALARM,) if signal.getsignal(ALARM) in (_time_is_up, _remember_time) else ()
    before = {number: signal.getsignal(number) for number in (*_SIGNALS, *timed)}

    def restore(numbers: Iterable[int]) -> None:
        for number in numbers:
            signal.signal(number, before[number])

    def handle(number: int, frame: FrameType | None) -> None:
        stop.signal = stop.signal or number
        if number != ALARM:  # it repeats
            restore(_SIGNALS)

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        restore(before)


@contextmanager
def time_limits() -> Iterator[None]:
    """Remove a time limit that ``limit_time`` set in the ``with`` block at its end."""
    global _time_was_up
    before = signal.getsignal(ALARM)
    try:
        yield
    finally:
        if signal.getsignal(ALARM) is not before:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(ALARM, before)
            _time_was_up = False


def limit_time(seconds: float, *, is_alone: bool) -> None:
    """Exit with ``TIME_UP`` after ``seconds``, or within ``handle_signals`` at the next checkpoint.

    A process that is not ``is_alone``, since other processes wait for it, only exits at a checkpoint.
    """
    signal.signal(ALARM, _time_is_up if is_alone else _remember_time)
    signal.setitimer(signal.ITIMER_REAL, seconds, _ALARM_INTERVAL)


def _time_is_up(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TIME_UP)


def _remember_time(number: int, frame: FrameType | None) -> None:
    global _time_was_up
    _time_was_up = True
