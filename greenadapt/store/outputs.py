"""Files that commands write, and copies of folders; the same rules for all of them.

A file must not exist, and appears once it is complete, so a failed run changes nothing. Pipes and devices, such as
``/dev/null`` or ``/dev/stdout``, are written directly. Missing folders are not created.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from filelock import lock_descriptor

from greenadapt.errors import ConflictError, LockedError, MissingError
from greenadapt.store.files import STDOUT, creating, naming, publish_folder, real_folder, sync_file

COMPRESSIONS = frozenset({".gz", ".bz2", ".xz", ".zst"})


def check_file(path: Path) -> None:
    """Refuse, before hours of work, a file that exists, or that cannot be created.

    Raises ``ConflictError`` for an existing path or one below a file, ``MissingError`` if its folder does not exist.
    """
    if path.is_dir():
        raise ConflictError(f"{path} is a folder", "give a file in it")
    if is_written_through(path):
        return
    if os.path.lexists(path):
        is_stream = str(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))
        hint = "give a pipe or a new file" if is_stream else "give another path, or remove it"
        raise ConflictError(f"{path} exists", hint)
    if not path.parent.is_dir():
        if os.path.lexists(path.parent):
            raise ConflictError(f"{path} cannot be created ({path.parent} is not a folder)", "give another path")
        raise MissingError(f"{path}: folder {path.parent} does not exist", "create it, or check the path")


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """The path to write to instead of ``path``, to which it is renamed when the block ends without an error.

    Raises what ``check_file`` raises, also if the file was created meanwhile, and ``LockedError`` if another command
    writes it.
    """
    check_file(path)
    if is_written_through(path):
        yield path
        return
    part = path.with_name(f".{path.name}.part")
    with creating(path):
        handle = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not lock_descriptor(handle, blocking=False):  # that of a killed command is free, and written anew
            raise LockedError(f"another command is writing {path}", "wait until it ends, or give another path")
        try:
            yield part
            sync_file(part)
            check_file(path)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(path)
        raise
    finally:
        os.close(handle)


@contextmanager
def open_file(path: Path, mode: str) -> Iterator[IO[Any]]:
    """A stream into ``path``, in mode ``w`` (UTF-8) or ``wb``; compressed if the suffix says so.

    Raises what ``check_file`` raises, and ``ConflictError`` if it cannot be created.
    """
    with writing(path) as part, naming(path), ExitStack() as stack:
        with creating(path):
            stream = stack.enter_context(_open(part, path.suffix, mode))
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


def copy_files(files: Iterable[Path], base: Path, out: Path) -> Path:
    """Copy ``files`` below ``base`` to the new or empty folder ``out``, which appears when it is whole.

    Returns the path of the copy. Raises ``ConflictError`` if ``out`` holds anything.
    """
    target = real_folder(out)
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise ConflictError(f"{target} exists", "give a new folder")
    work = target.with_name(f".{target.name}.{uuid4().hex[:8]}.part")
    try:
        for file in files:
            copy = work / file.relative_to(base)
            with naming(target), creating(target):
                copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        publish_folder(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


@contextmanager
def _open(path: Path, suffix: str, mode: str) -> Iterator[IO[Any]]:
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
    """Whether ``path`` is a device or a pipe, as ``/dev/stdout`` may be."""
    return path.exists() and not path.is_file()
