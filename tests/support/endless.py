"""Input without end."""

import gzip
import io
import random
from pathlib import Path


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


def write_endless(path: Path, begin: bytes = b"", line: int = 0) -> str:
    """A compressed file of just over 128 MiB: ``begin``, then one line, or lines of ``line`` characters, mostly spaces.

    It unpacks to less than 200 times its size, which is a limit of its own.
    """
    draw = random.Random(1)
    text = bytearray(b"a" if not line else b" ") * (1 << 20)
    for begins in range(0, len(text), 1 << 14):
        text[begins : begins + 256] = bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz", k=256))
    if line:
        text[line - 1 :: line] = b"\n" * (len(text) // line)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(begin)
        for _ in range(129):
            file.write(text)
    return str(path)
