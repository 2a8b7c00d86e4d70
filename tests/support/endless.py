"""Input without end."""

import io


class Endless(io.RawIOBase):
    """A stream that repeats a line without end; ``taken`` counts the lines that were read."""

    def __init__(self, line: str) -> None:
        self.taken = 0
        self._line = f"{line}\n".encode()
        self._left = b""

    def readline(self, size: int | None = -1, /) -> bytes:
        if not self._left:
            self.taken += 1
            self._left = self._line
        end = len(self._left) if size is None or size < 0 else size
        read, self._left = self._left[:end], self._left[end:]
        return read

    def as_stdin(self) -> object:
        """An object that replaces ``sys.stdin``."""
        return type("Stdin", (), {"buffer": self})
