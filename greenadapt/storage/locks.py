"""One writer at a time, by an operating-system lock that is released when the process dies."""

import fcntl
import os
import re
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from greenadapt.errors import ConflictError, LockedError
from greenadapt.storage.files import creating

_OWN = re.compile(rb"process \d+ on ")
"""How the content of a lock of greenadapt begins."""
_LONGEST = 1000
"""Bytes of a command that a message shows."""
# struct flock: Python has no call that only asks who holds a lock.
_FLOCK, _FLOCK_NAMES = (
    ("@qqihh", ("start", "length", "process", "type", "whence"))
    if sys.platform == "darwin"
    else ("@hhqqi4x", ("type", "whence", "start", "length", "process"))
)
_held: dict[Path, tuple[int, int]] = {}
"""Of each lock of this process the open file, and the thread that holds it."""
_changing = threading.Lock()


@contextmanager
def lock(path: Path, what: Path | None = None, command: str | None = None) -> Iterator[None]:
    """Hold the writer lock ``path`` while the block runs; the same thread may acquire it again inside.

    It protects ``what``, by default the folder of ``path``. It is a record lock: it is released when a process is
    killed, and child processes do not inherit it. (The ``flock`` of the filelock package would survive in forked
    children.) Raises ``LockedError`` naming ``what`` and the process that holds it, with its ``command`` if that is
    known, ``ConflictError`` with the reason why the lock cannot be created, or if the file is somebody else's.
    """
    path = path.absolute()
    what = what or path.parent
    with _changing:
        held = _held.get(path)
        if held is None:
            made = [folder for folder in path.parents if not folder.exists()]
            with creating(what):
                path.parent.mkdir(parents=True, exist_ok=True)
                handle = _acquire(path, what, command)
            _held[path] = handle, threading.get_ident()
        elif held[1] != threading.get_ident():
            raise LockedError(f"another thread of this process is writing {what}", "wait until it ends")
    if held is not None:
        yield
        return
    try:
        yield
    finally:
        with _changing:
            del _held[path]
            path.unlink(missing_ok=True)
            os.close(handle)
        with suppress(OSError):  # folders that were made for the lock, and that nothing was written into
            for folder in made:
                folder.rmdir()


def holder(path: Path) -> str | None:
    """The process that holds the lock ``path``, as it calls itself, or ``None``; takes no lock to find out."""
    path = path.absolute()
    with _changing:  # closing the file would release this process's own lock
        if path in _held:
            return _owner(os.pread(_held[path][0], _LONGEST, 0))
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:
            return None
        try:
            asked = struct.pack(_FLOCK, *(fcntl.F_WRLCK if name == "type" else 0 for name in _FLOCK_NAMES))
            told = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
            is_free = dict(zip(_FLOCK_NAMES, told, strict=True))["type"] == fcntl.F_UNLCK
            return None if is_free else _owner(os.read(handle, _LONGEST))
        finally:
            os.close(handle)


def _owner(content: bytes) -> str:
    return content.decode(errors="replace") or "another process"


def _acquire(path: Path, what: Path, command: str | None) -> int:
    own = f"process {os.getpid()} on {socket.gethostname()}" + (f" ({command})" if command else "")
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (content := os.pread(handle, _LONGEST, 0)) and not _OWN.match(content):
                raise ConflictError(
                    f"{path} is in the way: greenadapt locks that file, and has not made it",
                    "move it away, or choose another place",
                )
            if path.stat().st_ino == os.fstat(handle).st_ino:
                os.ftruncate(handle, 0)
                os.write(handle, own.encode())
                return handle
        except FileNotFoundError:
            pass  # removed between our open and our check: try the new one
        except BlockingIOError:
            owner = _owner(os.read(handle, _LONGEST))
            os.close(handle)
            raise LockedError(f"{owner} is writing {what}", "wait until it ends, or stop it") from None
        except (OSError, ConflictError):
            os.close(handle)
            raise
        os.close(handle)  # the holder removed the file between our open and our lock: try the new one
