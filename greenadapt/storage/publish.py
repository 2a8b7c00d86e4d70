"""Publish a finished folder under its name, atomically and durably."""

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from greenadapt.errors import ConflictError
from greenadapt.storage.names import expanded, require_utf8
from greenadapt.storage.ownership import added_files, is_result, remove_folder, require_own

STDOUT = "standard output"
"""Its name in messages."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Name ``path`` in the error of a full disk; errors of writing to an open file name no file."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def creating(path: Path) -> Iterator[None]:
    """Raise ``ConflictError`` if ``path``, or what is beside it or above it, cannot be created; a full disk is left as
    it is.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise
        above = next(folder for folder in path.absolute().parents if folder.exists())
        reason = error.strerror if above.is_dir() else f"{above} is not a folder"
        raise ConflictError(f"{path} cannot be created ({reason})", "give another path") from None


def publish_version(work: Path, link: Path) -> Path:
    """Move ``work`` under ``.versions/`` beside ``link``, point ``link`` to it, and remove older versions.

    The version that ``link`` pointed to is kept, by a hidden link, until the next call, for those still reading it.
    Kept are also those that hold files of others. Returns the folder's new path.
    """
    _sync(work)
    versions = link.parent / ".versions"
    versions.mkdir(exist_ok=True)
    version = versions / uuid4().hex[:16]
    work.rename(version)
    _sync_folder(versions)
    previous, *_ = _links_beside(link)
    if link.is_symlink():
        _point(previous, link.readlink())
    elif link.is_dir() and any(link.iterdir()):  # the workspace was copied, and links were followed
        former = Path(".versions") / uuid4().hex[:16]
        _point(previous, former)
        link.rename(link.parent / former)
    elif link.is_dir():
        link.rmdir()
    _point(link, Path(".versions") / version.name)
    _sync_folder(link.parent)
    used = {path.resolve().name for path in link.parent.iterdir() if path.is_symlink()}
    for old in versions.iterdir():
        if old.name not in used and is_result(old) and not added_files(old):
            with suppress(OSError):
                remove_folder(old)
    return version.resolve()


def require_link(link: Path) -> None:
    """Raise ``ConflictError`` if something else than a link to a version is at a hidden neighbour of ``link``."""

    def is_known(path: Path) -> bool:
        return path.is_symlink() and path.readlink().parent == Path(".versions")

    for neighbour in _links_beside(link):
        require_own(neighbour, is_known)


def _links_beside(link: Path) -> tuple[Path, ...]:
    """The link to the version before, and those that are to become it and ``link``."""
    previous = link.with_name(f".{link.name}.previous")
    return previous, _fresh(previous), _fresh(link)


def _fresh(link: Path) -> Path:
    return link.with_name(f".{link.name}.new")


def _point(link: Path, target: Path) -> None:
    """Make ``link`` point to ``target``, atomically, whatever it pointed to."""
    fresh = _fresh(link)
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


def publish_folder(work: Path, target: Path) -> Path:
    """Move ``work`` to ``target``, replacing the folder there, which the caller knows to be greenadapt's."""
    _sync(work)
    if not target.exists() or not any(target.iterdir()):
        work.replace(target)
    elif _exchange(work, target):
        _remove(work)
    else:  # a file system that cannot exchange: the folder is missing for an instant
        old = beside(target, "old")
        require_own(old)
        _remove(old)
        target.rename(old)
        work.rename(target)
        _remove(old)
    _sync_folder(target.parent)
    return target.resolve()


def _remove(folder: Path) -> None:
    """As much as can be removed: the next run removes the rest."""
    with suppress(OSError):
        remove_folder(folder)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically, if the operating system and the file system support it."""
    libc = ctypes.CDLL(None)
    here = -100  # AT_FDCWD
    exchange = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS
    try:
        if sys.platform == "darwin":
            return bool(libc.renamex_np(os.fsencode(one), os.fsencode(other), exchange) == 0)
        return bool(libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)
    except AttributeError:
        return False


def real_folder(path: Path) -> Path:
    """A folder that the user named, as an absolute path without ``..``; for a symlink, which stays, its target.

    Raises ``InputError`` for a path that is not UTF-8.
    """
    path = expanded(path).absolute()
    path = Path(os.path.realpath(path)) if path.is_symlink() or ".." in path.parts else path
    require_utf8(path)
    return path


def beside(path: Path, what: str) -> Path:
    """The hidden neighbour of ``path`` for ``what``."""
    return path.absolute().parent / f".{path.name}.{what}"


def sync_file(path: Path) -> None:
    """Wait until a file is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_file():
            sync_file(path)
        elif path.is_dir():
            _sync_folder(path)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some network file systems have no folder sync
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
