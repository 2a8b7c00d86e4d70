"""How long work tells that it is alive, without the algorithms knowing about terminals."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """One piece of long work."""

    def advance(self, amount: float, **facts: str) -> None:
        """Count ``amount`` more units as done; ``facts`` (such as ``lr="0.021"``) are shown beside the bar."""


class Progress(Protocol):
    """Where notes and bars go: stderr under the command line, nowhere in a library call."""

    def note(self, message: str) -> None:
        """Say one line."""

    def warn(self, message: str) -> None:
        """Say one line that the user should not miss."""

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        """Show work of ``total`` units (``None``: unknown) named ``unit``, such as ``"words"`` or ``"bytes"``."""


class _SilentBar:
    def advance(self, amount: float, **facts: str) -> None:
        pass


class Silent:
    """A ``Progress`` that says nothing."""

    def note(self, message: str) -> None:
        pass

    def warn(self, message: str) -> None:
        pass

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        yield _SilentBar()
