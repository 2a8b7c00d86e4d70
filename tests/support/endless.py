"""Input without end."""

import io
from typing import Any


class Endless(io.RawIOBase):
    """A stream that repeats a line without end; ``taken`` counts the lines that were read."""

    def __init__(self, line: str) -> None:
        self.taken = 0
        self._line = f"{line}\n".encode()

    def readable(self) -> bool:
        """Whether it can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read as many whole lines as fit."""
        n_lines = len(buffer) // len(self._line)
        self.taken += n_lines
        content = self._line * n_lines
        buffer[: len(content)] = content
        return len(content)

    def as_stdin(self) -> object:
        """An object that replaces ``sys.stdin``."""
        return type("Stdin", (), {"buffer": io.BufferedReader(self, len(self._line))})
