"""Open local, remote, compressed and piped sources; tell formats by name, and hash content."""

import hashlib
import logging
import lzma
import os
import re
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.fields import check_path
from greenadapt.progress import Progress
from greenadapt.store.files import Json, expand_home, hash_file, hash_json, require_utf8, shorten_path
from greenadapt.store.outputs import COMPRESSIONS

_log = logging.getLogger(__name__)

_TAR = re.compile(r"\.(tar(\.(gz|bz2|xz|zst))?|tgz)$")
STDIN = "-"


@contextmanager
def input_errors(name: str) -> Iterator[None]:
    """Turn the errors of a missing, unreadable or damaged file into errors that name the file."""
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdError
    else:
        from backports.zstd import ZstdError

    try:
        yield
    except FileNotFoundError as error:
        raise _missing(name) from error
    except (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, ZstdError) as error:
        raise InputError(f"{name} is truncated or damaged ({error})", "fetch it or compress it again") from error
    except OSError as error:
        raise InputError(
            f"{name} cannot be read ({error.strerror or error})",
            "check the path and its permissions, or fetch it again",
        ) from error


@contextmanager
def open_binary(path: str) -> Iterator[IO[bytes]]:
    """Open a file on disk, http(s), decompressed by suffix (gz, bz2, xz, zst).

    Raises ``InputError`` for a zip archive, and after the block if the file changed meanwhile.
    """
    _log.debug("reads %s", shorten_path(path) if "://" in path else path)  # an address may contain a password
    name = urlsplit(path).path if "://" in path else path
    with input_errors(path), _open(path) as file, _decompress(file, name) as stream:
        refuse_zip(path)
        before = _state(path)
        yield stream
    if before is not None and (after := _state(path)) is not None and before[0] == after[0] and before != after:
        raise InputError(
            f"{path} changed while it was read: it had {before[1]:,} bytes and has {after[1]:,}",
            "run it again when the file is finished",
        )


def _state(path: str) -> tuple[int, int, int] | None:
    """Inode, size and time of a file on disk; ``None`` for anything else."""
    if "://" in path or not Path(path).is_file():
        return None
    status = Path(path).stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def refuse_zip(path: str) -> None:
    """Raise ``InputError`` for a file on disk that is a zip archive, which nothing here reads, such as a ``.xlsx``."""
    if not Path(path).is_file():
        return
    with open(path, "rb") as file:
        if file.read(4) == b"PK\3\4":
            raise InputError(f"{path} is a zip archive, which is not read", "unpack it, or pack it as .tar.gz")


def _open(path: str) -> IO[bytes]:
    if "://" not in path:
        check_path(path, "a file's name")
        return open(path, "rb")
    import smart_open  # takes 0.2 seconds

    opened: IO[bytes] = smart_open.open(path, "rb", compression="disable")
    return opened


def _decompress(packed: IO[bytes], name: str) -> IO[bytes]:
    """Decompress a file or member by the suffix of its ``name``; returns ``packed`` itself for other suffixes."""
    if not is_compressed(name):
        return packed
    from smart_open.compression import compression_wrapper

    return compression_wrapper(packed, "rb", ".gz" if name.lower().endswith(".tgz") else Path(name.lower()).suffix)


def is_read_once(source: str) -> bool:
    """Whether ``source`` can be read only once: standard input or another pipe, such as a shell's ``<(…)``."""
    path = Path(source)
    is_pipe = path.exists() and not path.is_file() and not path.is_dir() and not path.samefile(os.devnull)
    return source == STDIN or is_pipe


def note_terminal(source: str, progress: Progress) -> None:
    """Tell the user to type the text if ``source`` is standard input and a terminal."""
    if source == STDIN and sys.stdin is not None and sys.stdin.buffer.isatty():
        progress.note("standard input is this terminal: type the text, and end it with Ctrl-D")


def refuse_read_once(source: str) -> None:
    """Raise ``InputError`` for standard input, a pipe or a device where a file is read more than once."""
    if is_read_once(source):
        raise InputError(f"{input_name(source)} is a pipe or a device, which can be read only once", "give a file")


def input_name(source: str) -> str:
    """The name of a file, or of standard input, ``-``, in messages."""
    return "standard input" if source == STDIN else source


@contextmanager
def open_input(source: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file as ``open_binary`` does, or standard input for ``-``; yields the stream and its name in messages."""
    if source == STDIN:
        if sys.stdin is None:  # closed by the parent process
            raise MissingError("standard input is closed", "give a file to read")
        yield sys.stdin.buffer, input_name(source)
        return
    with open_binary(source) as stream:
        yield stream, source


@contextmanager
def open_member(stream: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Open an archive's member, decompressed by the suffix of its name."""
    with input_errors(name), _decompress(stream, name) as content:
        yield content


def squeeze(text: str) -> str:
    """``text`` stripped, with every run of white space replaced by one space."""
    return " ".join(text.split())


def data_suffix(path: str) -> str:
    """The suffix of a file's format, in lower case and without the compression: ``.jsonl`` for ``A.JSONL.GZ``.

    Returns "" if there is none.
    """
    name = Path(path)
    if name.suffix.lower() in COMPRESSIONS:
        name = name.with_suffix("")
    return name.suffix.lower()


def is_compressed(path: str) -> bool:
    """Whether ``path`` has the suffix of a compressed file."""
    return path.lower().endswith((*COMPRESSIONS, ".tgz"))


def is_tar(path: str) -> bool:
    """Whether ``path`` has the suffix of a tar archive, compressed or not."""
    return bool(_TAR.search(path.lower()))


def is_hidden(name: str) -> bool:
    """Whether a part of a path is hidden, such as the copies ``._a.txt`` in archives made on macOS."""
    return any(part.startswith(".") and part not in (".", "..") for part in PurePosixPath(name).parts)


def visible_files(folder: Path) -> Iterator[Path]:
    """Yield the paths in a folder that are not hidden, in order; raises ``InputError`` for a name that is not UTF-8.

    Does not follow symlinks to folders. Holds the names of a folder, not all paths: corpora have millions of files.
    """
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        if is_hidden(name):
            continue
        path = folder / name
        require_utf8(path)
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from visible_files(path)


def require_names(source: str) -> None:
    """Raise ``InputError`` if the path of a file or folder is not UTF-8."""
    path = expand_home(source)
    if path.exists():
        require_utf8(path.resolve())


def path_sha256(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of the visible files of a folder, in hexadecimal."""
    if not path.is_dir():
        with input_errors(str(path)):
            return hash_file(path)
    digest = hashlib.sha256()
    for file_path in visible_files(path):
        name = file_path.relative_to(path).as_posix()
        if file_path.is_file():
            digest.update(f"{name}\0{path_sha256(file_path)}\n".encode())
    return digest.hexdigest()


def refuse_twice(paths: Iterable[str]) -> None:
    """Raise ``UsageError`` if ``paths`` repeats a path."""
    unique = set()
    for path in paths:
        if path in unique:
            raise UsageError(f"{input_name(path)} is given twice", "give it once")
        unique.add(path)


def require_source(source: str) -> None:
    """Raise ``MissingError`` unless ``source`` is an existing file or folder, a data set on the hub, or a URL."""
    if not (expand_home(source).exists() or "://" in source or is_hub_id(source)):
        raise _missing(source)


def _missing(source: str) -> MissingError:
    hint = f", or name the split if it is a data set of the hub: {source}:train" if HUB_ID.fullmatch(source) else ""
    return MissingError(f"{source} does not exist", f"check the path{hint}")


def source_input(source: str) -> Json:
    """The manifest entry of an input: the hash of a file or folder, or of the id of a data set.

    Raises ``MissingError`` for a file that does not exist, ``InputError`` for a pipe.
    """
    refuse_read_once(source)
    require_names(source)
    path = expand_home(source)
    if path.exists():
        return {"sha256": path_sha256(path), "path": str(path.absolute())}
    require_source(source)
    return {"sha256": hash_json(source), "source": source}


SEPARATORS = {".csv": ",", ".tsv": "\t"}
JSON_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})
TABLE_SUFFIXES = frozenset(SEPARATORS)
CONLL_SUFFIXES = frozenset({".conll", ".bio", ".iob", ".iob2"})
_FILES = frozenset(
    {*TABLE_SUFFIXES, *COMPRESSIONS, *JSON_SUFFIXES, *CONLL_SUFFIXES}
    | {".txt", ".text", ".xml", ".nxml", ".tar", ".tgz", ".zip", ".parquet", ".xlsx"}
)
_PART = r"\w[\w.-]*"
# Without an owner the name may be a format, such as json, and the hub's library would read the current folder.
HUB_ID = re.compile(rf"(?P<name>{_PART}/{_PART})(/(?P<configuration>{_PART}))?(:(?P<split>.+))?")


def is_hub_id(source: str, folder: Path = Path()) -> bool:
    """Whether ``source`` is the id of a data set on the hub, ``owner/name[/configuration][:split]``.

    Existing files and names with the suffix of a data file are not ids, nor is, unless it names a split, a path into a
    folder that ``folder`` has.
    """
    match = HUB_ID.fullmatch(source)
    if match is None or (folder / source).exists() or Path(source).suffix.lower() in _FILES:
        return False
    return match["split"] is not None or not (folder / source.partition("/")[0]).is_dir()


def hub_data_set(source: str) -> str | None:
    """The ``owner/name`` of a data set on the hub; ``None`` for a file."""
    match = HUB_ID.fullmatch(source) if is_hub_id(source) else None
    return match and match["name"]
