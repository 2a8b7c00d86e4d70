"""Input without end."""

import gzip
import io
from pathlib import Path


class Endless(io.RawIOBase):
    """The same line again and again; ``taken`` counts what was read of it."""

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
        """What stands for ``sys.stdin``."""
        return type("Stdin", (), {"buffer": self})


def write_endless(path: Path, begin: bytes = b"", line: int = 0) -> str:
    """A compressed file of just over 128 MiB: ``begin``, then one line, or lines of ``line`` characters."""
    text = b"a" * (1 << 20) if not line else (b" " * (line - 1) + b"\n") * ((1 << 20) // line)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(begin)
        for _ in range(129):
            file.write(text)
    return str(path)
