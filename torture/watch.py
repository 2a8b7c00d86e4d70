"""Files that a process opens and changes, and programs that it starts, by Python's audit events."""

import os
import site
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_CODE = {"pickle.find_class": ("posix", "os", "subprocess", "builtins", "nt"), "os.system": (), "subprocess.Popen": ()}
"""Events that data must not cause → modules, if only some count."""
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),), "os.rmdir": ((0, 1),), "os.mkdir": ((0, 2),), "os.chmod": ((0, 2),), "os.chown": ((0, 3),),
    "os.rename": ((0, 2), (1, 3)), "os.link": ((0, 2), (1, 3)), "os.symlink": ((1, 2),), "os.truncate": ((0, None),),
    "shutil.rmtree": ((0, 1),), "shutil.move": ((0, None), (1, None)),
}  # fmt: skip
"""Events → which arguments are paths, and the descriptors of the folders that they are relative to, if any. What a
symlink points to is not touched.
"""
_SYSTEM = ("/usr", "/lib", "/proc", "/sys", "/etc/ssl", "/etc/localtime", "/etc/ld.so.cache", "/etc/mime.types")
_SCRATCH = ("/dev/null", "/dev/tty", "/dev/pts", "/dev/fd", "/dev/urandom", "/proc/self")
_MOST = 20


def watch(readable: Iterable[Path], writable: Iterable[Path], starts: Iterable[str] = ()) -> list[str]:
    """Note from now on, in the returned list, what lies outside these folders, and programs but ``starts``.

    Python's own folders and the system's may be read. It cannot be ended.
    """
    python = [*sys.path, sys.prefix, sys.base_prefix, *site.getsitepackages(), str(Path(__file__).parents[1])]
    may_write = tuple(_real(path) for path in (*map(str, writable), *_SCRATCH))
    may_read = (*(_real(path) for path in (*map(str, readable), *filter(None, python), *_SYSTEM)), *may_write)
    accesses: list[str] = []
    allowed = frozenset(starts)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        access = ""
        if event == "open":
            path, mode, flags = (*arguments, None, None, None)[:3]
            writes = (isinstance(mode, str) and any(c in mode for c in "wax+")) or (
                isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            )
            if isinstance(path, str | bytes) and not _is_in(path, may_write if writes else may_read):
                access = f"{'writes' if writes else 'reads'} {os.fsdecode(path)}"
        elif event in _CHANGES:
            paths = [_changed(arguments, *where) for where in _CHANGES[event]]
            access = next((f"{event} {path}" for path in paths if path and not _is_in(path, may_write)), "")
        elif event in _CODE and (not _CODE[event] or arguments[0] in _CODE[event]):
            is_allowed = event == "subprocess.Popen" and Path(str(arguments[0])).name in allowed
            access = "" if is_allowed else f"{event} {arguments[:2]}"
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            access = f"connects to {arguments[1]}"
        if access and len(accesses) < _MOST:
            accesses.append(access)

    sys.addaudithook(hook)
    return accesses


def _changed(arguments: tuple[Any, ...], at: int, folder_at: int | None) -> str:
    """The path among an event's arguments; "" if it is an open file."""
    path = arguments[at]
    if not isinstance(path, str | bytes):
        return ""
    folder = arguments[folder_at] if folder_at is not None and folder_at < len(arguments) else None
    above = Path(f"/proc/self/fd/{folder}").readlink() if isinstance(folder, int) and folder >= 0 else Path()
    return str(above / os.fsdecode(path))


def _real(path: str) -> str:
    return os.path.realpath(path)


def _is_in(path: str | bytes, folders: tuple[str, ...]) -> bool:
    real = os.path.realpath(os.fsdecode(path))
    return any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders)
