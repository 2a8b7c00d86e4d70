"""Files that commands write: one rule for all of them.

A file that is there is replaced once the new one is complete, so that a run that fails changes nothing; a symlink stays
and what it points to is replaced. What is no file, such as a pipe, ``/dev/null`` or ``/dev/stdout``, is written as it
is. A folder that is missing is not made.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from greenadapt.errors import ConflictError, MissingError, UsageError
from greenadapt.storage.publish import STDOUT, naming

_OPEN_FILES = re.compile(r"/proc/[^/]+(/task/[^/]+)?/fd$")


_LINKS = 40
"""So many links in a row does Linux follow."""


def check_file(path: Path, read: Iterable[str] = ()) -> None:
    """Refuse a file that could not be written hours later, or is one of those that are ``read``.

    Raises ``ConflictError`` where it is a folder, ``MissingError`` where its folder is not there, ``UsageError`` where
    it is read.
    """
    if path.is_dir():
        raise ConflictError(f"{path} is a folder", "name a file in it")
    if _is_written_through(path):
        return
    target = os.path.realpath(path)
    folder = Path(target).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise MissingError(f"{path}: there is no folder {folder}", "make it, or check the path")
    if target in map(os.path.realpath, read):
        raise UsageError(f"{path} is read and would be replaced", "name another file")


@contextmanager
def open_file(path: Path, mode: str) -> Iterator[IO[Any]]:
    """What is written into ``path``, in the mode ``w`` (UTF-8) or ``wb``; compressed where the name says so.

    Raises what ``check_file`` raises.
    """
    check_file(path)
    if _is_written_through(path):  # appended, since what stdout is may be a file with something in it already
        with naming(path), _opened(path, path.suffix, mode.replace("w", "a")) as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.part")
    try:
        with naming(path), _opened(part, path.suffix, mode) as stream:
            yield stream
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def open_output(out: Path | None) -> Iterator[tuple[IO[str], bool]]:
    """Where rows go, stdout or the file ``out``, and whether it takes only ASCII; see ``open_file``."""
    if out is None:
        with naming(STDOUT):
            yield sys.stdout, (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
        return
    with open_file(out, "w") as stream:
        yield stream, False


def _opened(path: Path, suffix: str, mode: str) -> IO[Any]:
    import smart_open

    from greenadapt.storage.outputs import COMPRESSIONS

    compression = suffix.lower() if suffix.lower() in COMPRESSIONS else "disable"
    encoding = None if "b" in mode else "utf-8"
    stream: IO[Any] = smart_open.open(str(path), mode, encoding=encoding, compression=compression)
    return stream


def _is_written_through(path: Path) -> bool:
    """Whether ``path`` is a device or a pipe, or leads to what this process has open, as ``/dev/stdout`` does."""
    if path.exists() and not path.is_file():
        return True
    link = path.absolute()
    for _ in range(_LINKS):
        if not link.is_symlink():
            break
        if _OPEN_FILES.match(os.path.realpath(link.parent)):
            return True
        link = link.parent / link.readlink()
    return False


COMPRESSIONS = frozenset({".gz", ".bz2", ".xz", ".zst"})
