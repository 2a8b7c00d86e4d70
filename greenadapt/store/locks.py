"""One writer at a time, by an operating-system lock that is released when the process dies."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout, lock_descriptor

from greenadapt.errors import LockedError
from greenadapt.store.files import creating

_LONGEST = 1000
"""Bytes of a command that a message shows."""
_PATIENCE, _INTERVAL = 0.2, 0.02  # seconds; `holder` locks a file for a moment


@contextmanager
def lock(path: Path, result: Path | None = None, command: str | None = None) -> Iterator[None]:
    """Hold the writer lock ``path`` while the block runs; the same thread may acquire it again inside.

    It protects ``result``, by default the folder of ``path``. It is released when the process is killed, and child
    processes do not inherit it (filelock since 4.0 closes the file in forked children, too). Raises ``LockedError``
    naming ``result`` and the process that holds it, with its ``command`` if that is known, ``ConflictError`` with the
    reason why the lock cannot be created.
    """
    path = path.absolute()
    result = result or path.parent
    new_folders = [folder for folder in path.parents if not folder.exists()]
    with creating(result):
        path.parent.mkdir(parents=True, exist_ok=True)
        file_lock = _acquire(path, result, command)
    try:
        yield
    finally:
        if file_lock.lock_counter == 1:
            with suppress(PermissionError):  # Windows removes no open file
                path.unlink(missing_ok=True)
        file_lock.release()
        with suppress(OSError):  # unless something was written into them
            for folder in new_folders:
                folder.rmdir()


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
    return _content(path) or "another process"


def _content(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(_LONGEST).decode(errors="replace")


def _acquire(path: Path, result: Path, command: str | None) -> BaseFileLock:
    process = f"process {os.getpid()} on {socket.gethostname()}"
    file_lock = FileLock(
        path, _PATIENCE, is_singleton=True, mode=0o666, preserve_lock_file=True, fallback_to_soft=False
    )
    try:
        file_lock.acquire(poll_interval=_INTERVAL)
    except Timeout:
        owner = _owner(path)
        if owner.partition(" (")[0] == process:
            raise LockedError(f"another thread of this process is writing {result}", "wait until it ends") from None
        raise LockedError(f"{owner} is writing {result}", "wait until it ends, or stop it") from None
    if file_lock.lock_counter > 1:
        return file_lock
    try:
        path.write_text(process + (f" ({command})" if command else ""), "utf-8", "surrogateescape")
    except BaseException:
        file_lock.release()
        raise
    return file_lock
