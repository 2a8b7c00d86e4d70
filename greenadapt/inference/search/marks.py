"""Size and checksums of the files of an index."""

import os
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

_END = 1 << 16
"""Bytes at either end of a file that are compared when an index is opened."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileMark:
    """The size and checksums of a file: CRC-32 finds any change of a few bytes, and others but for 1 in 2³²."""

    bytes: int
    crc32: str
    """Of all of it, hexadecimal."""
    ends: str
    """Of its first and its last 64 KiB; of all of it if they meet."""

    @classmethod
    def of(cls, path: Path) -> "FileMark":
        """The mark of a file; raises ``OSError`` if it cannot be read."""
        size = path.stat().st_size
        return cls(size, _whole(path), _ends(path, size))

    def difference(self, path: Path, *, whole: bool) -> str:
        """How the file at ``path`` differs, in words that follow its name; "" if it does not.

        Unless the ``whole`` file is read, only its size and its ends are compared.
        """
        try:
            size = path.stat().st_size
            if size != self.bytes:
                return f"has {size:,} bytes, need {self.bytes:,}"
            is_same = _whole(path) == self.crc32 if whole else _ends(path, size) == self.ends
        except (FileNotFoundError, NotADirectoryError):
            return "is missing"
        return "" if is_same else "is damaged: its checksum differs"


def _whole(path: Path) -> str:
    value = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            value = crc32(block, value)
    return f"{value:08x}"


def _ends(path: Path, size: int) -> str:
    with open(path, "rb") as file:
        value = crc32(file.read(_END))
        file.seek(max(_END, size - _END), os.SEEK_SET)
        return f"{crc32(file.read(_END), value):08x}"
