"""Small files that users name, such as settings: read whole, but no more than they can reasonably be."""

import errno
import os
import select
import stat
import time
from pathlib import Path
from typing import Any

from greenadapt.errors import InputError, byte_size

MOST_TEXT = 1 << 20
"""Bytes of a file of settings, tasks, or a recipe."""
_BLOCK = 1 << 20
_PATIENCE = 30.0
"""Seconds that a pipe has to be written in."""
_pipes: dict[tuple[int, int], bytes] = {}
"""What was read of each pipe of a shell, which can be read only once, by device and inode."""


def read_small(path: Path, most: int = MOST_TEXT, *, may_be_pipe: bool = False) -> bytes:
    """The bytes of a regular file of at most ``most``, or of a pipe, such as a shell's ``<(…)``, that ends in time.

    A pipe is read once, and its content remembered. Raises ``InputError`` for what is larger, is another kind of file
    or does not end, and ``OSError`` as ``open``.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without waiting for the writer of a pipe
    try:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISFIFO(found.st_mode) and may_be_pipe:
            key = (found.st_dev, found.st_ino)
            if key not in _pipes:
                _pipes[key] = _piped(handle, path, most)
            return _pipes[key]
        if not (stat.S_ISREG(found.st_mode) or path.samefile(os.devnull)):
            raise InputError(f"{path} is a pipe or a device", "give a file")
        content = bytearray()
        while block := os.read(handle, min(most + 1 - len(content), _BLOCK)):
            content += block
            if len(content) > most:
                raise _too_large(path, most)
        return bytes(content)
    finally:
        os.close(handle)


def read_toml(path: Path, hint: str, *, may_be_pipe: bool = False) -> dict[str, Any]:
    """The content of a TOML file; raises ``InputError`` for anything else, and what ``read_small`` raises."""
    import tomllib

    content = read_small(path, may_be_pipe=may_be_pipe)
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also of what is not UTF-8, and of numbers without end
        raise InputError(f"{path} is not TOML ({error})", hint) from None


def _piped(handle: int, path: Path, most: int) -> bytes:
    content, end = bytearray(), time.monotonic() + _PATIENCE
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    while (left := end - time.monotonic()) > 0:
        if not waiting.poll(1000 * left):
            break
        block = os.read(handle, min(most + 1 - len(content), _BLOCK))
        content += block
        if len(content) > most:
            raise _too_large(path, most)
        if not block:
            return bytes(content)
    raise InputError(f"{path} is a pipe that has not ended after {_PATIENCE:g} s", "write it to a file, and give that")


def _too_large(path: Path, most: int) -> InputError:
    return InputError(f"{path} is larger than {byte_size(most)}, which no such file is", "check the path")
