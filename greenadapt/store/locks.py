"""One writer at a time, by an operating-system lock that is released when the process dies."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

from greenadapt.errors import LockedError
from greenadapt.store.files import creating

_LONGEST = 1000
"""Bytes of a command that a message shows."""
_PATIENCE, _INTERVAL = 0.2, 0.02  # seconds; `holder` locks a file for a moment


@contextmanager
def lock(path: Path, result: Path | None = None, command: str | None = None) -> Iterator[None]:
    """Hold the writer lock ``path`` while the block runs.

    It protects ``result``, by default the folder of ``path``. It is released when the process is killed, and child
    processes do not inherit it (filelock since 4.0 closes the file in forked children, too). Raises ``LockedError``
    naming ``result`` and the process that holds it, with its ``command`` if that is known, ``ConflictError`` with the
    reason why the lock cannot be created.
    """
    result = result or path.absolute().parent
    file_lock = FileLock(path, _PATIENCE, mode=0o666, preserve_lock_file=True, fallback_to_soft=False)
    with creating(result):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file_lock.acquire(poll_interval=_INTERVAL)
        except Timeout:
            raise LockedError(f"{_owner(path)} is writing {result}", "wait until it ends, or stop it") from None
    try:
        owner = f"process {os.getpid()} on {socket.gethostname()}" + (f" ({command})" if command else "")
        path.write_text(owner, "utf-8", "surrogateescape")
        yield
    finally:
        path.unlink(missing_ok=True)
        file_lock.release()


def holder(path: Path) -> str | None:
    """The process that holds the lock ``path``, by the name that it wrote into it, or ``None``."""
    try:
        # A network file system locks only what is open for writing.
        handle = os.open(path, os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY)
    except OSError:
        return None
    try:
        return None if lock_descriptor(handle, blocking=False) else _owner(path)
    except OSError:
        return None
    finally:
        os.close(handle)


def _owner(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(_LONGEST).decode(errors="replace") or "another process"
