"""Progress reports of long work, independent of terminals."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

STAGE: ContextVar[str | None] = ContextVar("stage", default=None)
"""The stage that runs, for log lines."""


class Bar(Protocol):
    """The progress of one piece of work."""

    def advance(self, amount: float, **facts: str) -> None:
        """Count ``amount`` more units as done; ``facts`` (such as ``lr="0.021"``) are shown beside the bar."""


@runtime_checkable
class Progress(Protocol):
    """Where notes and bars go: stderr under the command line, nowhere in a library call."""

    def note(self, message: str) -> None:
        """Say one line."""

    def warn(self, message: str) -> None:
        """Show one line that the user should not miss."""

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        """Show work of ``total`` units (``None``: unknown) named ``unit``, such as ``"words"`` or ``"bytes"``."""


class Named:
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


class SilentBar:
    """A ``Bar`` that shows nothing."""

    def advance(self, amount: float, **facts: str) -> None:
        pass


class Silent:
    """A ``Progress`` that shows nothing."""

    def note(self, message: str) -> None:
        pass

    def warn(self, message: str) -> None:
        pass

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        yield SilentBar()


class Warnings(Silent):
    """A ``Progress`` that shows nothing, and keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)
