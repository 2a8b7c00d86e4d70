"""Standard input without end."""

import io
from collections.abc import Iterator


class Endless(io.RawIOBase):
    """The same line again and again; ``taken`` counts what was read of it."""

    def __init__(self, line: str) -> None:
        self.taken = 0
        self._line = f"{line}\n".encode()

    def __iter__(self) -> Iterator[bytes]:  # type: ignore[override]
        while True:
            self.taken += 1
            yield self._line

    def as_stdin(self) -> object:
        """What stands for ``sys.stdin``."""
        return type("Stdin", (), {"buffer": self})
