"""Files that commands write, and copies of folders; the same rules for all of them.

An existing file is replaced once the new one is complete, so a failed run changes nothing; of a symlink, the target is
replaced. Pipes and devices, such as ``/dev/null`` or ``/dev/stdout``, are written directly. Missing folders are not
created.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from filecmp import cmp
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from greenadapt.errors import ConflictError, GreenadaptError, InputError, MissingError, UsageError
from greenadapt.storage.files import (
    STDOUT,
    beside,
    creating,
    naming,
    publish_folder,
    read_own,
    real_folder,
    replace_json,
    sync_file,
)
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import MARK, new_folder, remove_folder, require_own
from greenadapt.storage.results import refuse_overlap

COMPRESSIONS = frozenset({".gz", ".bz2", ".xz", ".zst"})
_OPEN_FILES = re.compile(r"/proc/[^/]+(/task/[^/]+)?/fd$")
_LINKS = 40
"""The most symlinks that Linux follows in a row."""


def check_file(path: Path, read: Mapping[str, str | os.PathLike[str]] = {}) -> None:
    """Refuse, before hours of work, a file that cannot be written, or that is or lies in an input.

    Inputs are ``read``, and what ``reading`` protects. Raises ``ConflictError`` for a folder or a path below a file,
    ``MissingError`` if its folder does not exist, ``UsageError`` if it is or lies in an input.
    """
    if path.is_dir():
        raise ConflictError(f"{path} is a folder", "give a file in it")
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not (is_written_through(path) or folder.is_dir()):
        if folder.exists():
            raise ConflictError(f"{path} cannot be created ({folder} is not a folder)", "give another path")
        raise MissingError(f"{path}: folder {folder} does not exist", "create it, or check the path")
    refuse_overlap(path, read)


def check_files(*paths: Path | None) -> None:
    """``check_file`` of each path but ``None``; raises ``UsageError`` for a file that is given twice."""
    taken = set()
    for path in paths:
        if path is None:
            continue
        check_file(path)
        target = os.path.realpath(path)
        if target in taken and not is_written_through(path):
            raise UsageError(f"{path} is given twice", "name another file")
        taken.add(target)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path to write to instead of ``path``, which is replaced when the block ends without an error.

    Raises what ``check_file`` raises.
    """
    check_file(path)
    if is_written_through(path):
        yield path
        return
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{uuid4().hex[:8]}.part")  # two commands may write the same file
    try:
        yield part
        sync_file(part)
        if target.exists():
            shutil.copymode(target, part)
        part.replace(target)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def open_file(path: Path, mode: str) -> Iterator[IO[Any]]:
    """A stream into ``path``, in mode ``w`` (UTF-8) or ``wb``; compressed if the suffix says so.

    Raises what ``check_file`` raises, and ``ConflictError`` if it cannot be created.
    """
    with replacing(path) as part, naming(path), ExitStack() as stack:
        if part == path:  # which is written through: stdout may be a file with content
            mode = mode.replace("w", "a")
        with creating(path):
            stream = stack.enter_context(_opened(part, path.suffix, mode))
        yield stream


@contextmanager
def open_output(out: Path | None) -> Iterator[tuple[IO[str], bool]]:
    """The stream for rows, stdout or the file ``out``, and whether it is limited to ASCII; see ``open_file``."""
    if out is None:
        with naming(STDOUT):
            yield sys.stdout, (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
        return
    with open_file(out, "w") as stream:
        yield stream, False


@dataclass(frozen=True)
class _ShardsMark:
    key: str
    n: int
    size: int


def copy_folder(source: Path, out: Path) -> Path:
    """Copy the visible files of ``source`` to the new folder ``out``, which appears when it is whole.

    Links are followed. If ``out`` holds the same files already, nothing happens. Returns the path of the copy.

    Raises ``UsageError`` if a folder is or lies in the other, ``ConflictError`` if ``out`` holds anything else,
    ``InputError`` for a dead link or a device in ``source``.
    """
    source, target = source.resolve(), real_folder(out)
    refuse_overlap(target, {"the model": source})
    names = _visible_files(source)
    work = beside(target, "work")
    with lock(beside(target, "lock"), target):
        if os.path.lexists(target) and (not target.is_dir() or os.path.ismount(target) or any(target.iterdir())):
            if not (
                target.is_dir()
                and _visible_files(target) == names
                and all(cmp(target / name, source / name, shallow=False) for name in names)
            ):
                raise ConflictError(f"{target} is there already, and is something else", "give a new folder")
            return target
        new_folder(work)
        try:
            with naming(target):
                for name in names:
                    (work / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source / name, work / name)
            (work / MARK).unlink()
            return publish_folder(work, target)
        finally:
            remove_folder(work)


def _visible_files(folder: Path) -> list[str]:
    """Names of the files in ``folder``, sorted; links are followed, and names that begin with a dot left out."""

    def fail(error: OSError) -> None:
        raise error

    names = []
    for base, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(base) / name for name in files if not name.startswith(".")):
            if not path.is_file():
                raise InputError(f"{path} is a dead link or a device", "remove it, or put the file there")
            names.append(path.relative_to(folder).as_posix())
    return sorted(names)


class Shards:
    """Finished parts of an output file, kept beside it until it is whole, so that the same command can resume.

    Not for pipes and devices.
    """

    def __init__(self, out: Path, key: str) -> None:
        """The shards of a killed command with this ``key``; shards with another key are dropped.

        Raises ``ConflictError`` if files of others lie at their paths.
        """
        self._out, self._key = out, key
        target = Path(os.path.realpath(out))
        self._text, self._mark = beside(target, "shards"), beside(target, "shards.json")
        self.n = self._size = 0
        """The number of shards, and their bytes."""
        try:
            mark = read_own(self._mark, _ShardsMark, "parts of an output")
        except (OSError, GreenadaptError):  # no command that was killed left any
            require_own(self._mark, lambda _: False)
            require_own(self._text, lambda _: False)
            return
        if mark.key == key and self._text.is_file() and self._text.stat().st_size >= mark.size:
            self.n, self._size = mark.n, mark.size

    def add(self, shards: Iterable[str]) -> None:
        """Append ``shards``, each whole or not at all."""
        with creating(self._out):
            self._write_mark()  # first, so that the shards count as greenadapt's own
            self._text.touch()
        with open(self._text, "ab") as file:
            file.truncate(self._size)
            for text in shards:
                file.write(text.encode())
                file.flush()
                self.n, self._size = self.n + 1, file.tell()
                self._write_mark()

    def publish(self) -> None:
        """Write the output, and remove the shards."""
        with open_file(self._out, "wb") as whole, open(self._text, "rb") as file:
            shutil.copyfileobj(file, whole)
        self._text.unlink()
        self._mark.unlink()

    def _write_mark(self) -> None:
        replace_json(self._mark, {"key": self._key, "n": self.n, "size": self._size})


@contextmanager
def _opened(path: Path, suffix: str, mode: str) -> Iterator[IO[Any]]:
    encoding = None if "b" in mode else "utf-8"
    if suffix.lower() == ".gz":  # smart_open's would have the time and this file's name in its header
        with open(path, f"{mode[0]}b") as file, GzipFile("", f"{mode[0]}b", fileobj=file, mtime=0) as packed:
            if encoding is None:
                yield packed  # type: ignore[misc]
            else:
                with TextIOWrapper(packed, encoding) as text:
                    yield text
    elif suffix.lower() in COMPRESSIONS:
        import smart_open  # half a second

        with smart_open.open(str(path), mode, encoding=encoding, compression=suffix.lower()) as stream:
            yield stream
    else:
        with open(path, mode, encoding=encoding) as stream:
            yield stream


def is_written_through(path: Path) -> bool:
    """Whether ``path`` is a device, a pipe, or a link to a file that this process has open, such as ``/dev/stdout``."""
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
