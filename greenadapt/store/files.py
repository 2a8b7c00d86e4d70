"""Read, write and publish files and folders: bounded, hashed, atomic; JSON and JSON lines; names for paths."""

import errno
import json
import os
import re
import stat
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from greenadapt.errors import ConflictError, GreenadaptError, InputError, MissingError, byte_size

_LONGEST = 100  # bytes


def own_folder(name: str) -> Path:
    """A folder that comes with greenadapt: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name


def path_name(path: str) -> str:
    """The last part of a path or address, without suffixes, plus eight hash digits of the whole."""
    last = re.sub(r"[^\w-]+", "-", PurePosixPath(path).name.split(".")[0]).strip("-")
    last = last.encode()[:_LONGEST].decode(errors="ignore")  # a folder's name may have 255 bytes
    return f"{last or 'unnamed'}-{sha256(os.fsencode(path)).hexdigest()[:8]}"


_RENAME = "rename it (convmv -f latin1 -t utf8 does it)"


def require_utf8(path: str | os.PathLike[str], hint: str = _RENAME) -> None:
    """Raise ``InputError`` for a name whose bytes are not UTF-8: manifests, cards and tokenizers could not hold it."""
    name = os.fspath(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        escaped = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise InputError(f"{escaped} is not UTF-8", hint) from None


def expand_home(path: str | os.PathLike[str]) -> Path:
    """``path`` with the home folder for ``~``, or as it is if the user is unknown (``Path.expanduser`` fails)."""
    return Path(os.path.expanduser(path))  # noqa: PTH111


def shorten_path(source: str) -> str:
    """A path for publication: relative if it lies in the working folder, else only its last part, since the rest, like
    a file's URL, may reveal something about its owner. Other names, such as hub ids, are unchanged.
    """
    if "://" in source:
        return PurePosixPath(source.partition("?")[0]).name
    path = expand_home(source)
    if not (path.is_absolute() or path.exists()):
        return source
    folder = Path.cwd()
    path = Path(os.path.normpath(folder / path))
    is_below = folder in path.parents and folder not in Path(os.environ.get("HOME", "~")).parents
    return str(path.relative_to(folder)) if is_below else path.name


STDOUT = "standard output"  # its name in messages
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
    """Raise ``ConflictError`` if ``path``, a file beside it or a folder above it cannot be created.

    The error of a full disk passes unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise
        above = next(folder for folder in path.absolute().parents if folder.exists())
        reason = error.strerror if above.is_dir() else f"{above} is not a folder"
        raise ConflictError(f"{path} cannot be created ({reason})", "give another path") from None


def publish_folder(work: Path, target: Path) -> None:
    """Rename the complete folder ``work`` to ``target``, which does not exist or is empty."""
    _sync(work)
    work.rename(target)
    _sync_folder(target.parent)


def real_folder(path: Path) -> Path:
    """A folder that the user named, as an absolute path without ``..``; for a symlink, which stays, its target.

    Raises ``InputError`` for a path that is not UTF-8.
    """
    path = expand_home(path).absolute()
    path = Path(os.path.realpath(path)) if path.is_symlink() or ".." in path.parts else path
    require_utf8(path)
    return path


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


_MOST_TEXT = 1 << 20
"""Bytes of a file of settings, tasks, or a recipe."""


def read_small(path: Path, max_bytes: int = _MOST_TEXT) -> bytes:
    """The bytes of a regular file of at most ``max_bytes`` bytes.

    Raises ``InputError`` for a larger file or another kind of file, and ``OSError`` as ``open``.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)  # without waiting for the writer of a pipe

    with open(path, "rb", opener=opener) as file:
        status = os.fstat(file.fileno())
        if not (stat.S_ISREG(status.st_mode) or path.samefile(os.devnull)):
            raise InputError(f"{path} is a pipe or a device", "give a file")
        if status.st_size > max_bytes:
            raise InputError(f"{path} is larger than {byte_size(max_bytes)}, which no such file is", "check the path")
        return file.read()


def read_toml(path: Path, hint: str) -> dict[str, Any]:
    """The content of a TOML file; raises ``InputError`` for anything else, and what ``read_small`` raises."""
    import tomllib

    content = read_small(path)
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # also of what is not UTF-8, and of numbers without end
        raise InputError(f"{path} is not TOML ({error})", hint) from None


Json = dict[str, Any]


_hashed: dict[Path, tuple[int, int]] = {}
"""The size and modification time that each file had before it was hashed, by its absolute path."""


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    with open(path, "rb") as file:
        _hashed[path.absolute()] = _stamp(os.fstat(file.fileno()))
        return file_digest(file, "sha256").hexdigest()


def forget_hashed() -> None:
    """Forget the files hashed so far: ``find_changed`` checks those that a command hashes from now on."""
    _hashed.clear()


def find_changed(places: Iterable[Path]) -> Path | None:
    """A file that is one of ``places``, or lies in one, and was changed or removed since ``hash_file`` read it."""
    within = set(places)
    for path, stamp in _hashed.items():
        if not within.isdisjoint((path, *path.parents)):
            try:
                if _stamp(path.stat()) != stamp:
                    return path
            except OSError:
                return path
    return None


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def hash_json(value: object) -> str:
    """SHA-256 of a JSON value in canonical form, hexadecimal."""
    return sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def to_plain(value: Any) -> Any:
    """``value`` after a round trip through JSON, to compare it with a stored manifest."""
    return json.loads(json.dumps(value, default=lambda item: item.item() if hasattr(item, "item") else str(item)))


def write_json(path: Path, value: object) -> None:
    """Write JSON for people and programs: indented, UTF-8, ending in a newline."""
    with naming(path):
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The hidden file to write in place of ``path``, whose place it takes at the end of the block: a reader of ``path``
    sees the whole old or the whole new content. A killed process leaves at most the hidden file.
    """
    part = path.with_name(f".{path.name}.part")
    yield part
    sync_file(part)
    part.replace(path)


def write_lines(path: Path, rows: Iterable[Json]) -> None:
    """Write JSON lines, UTF-8."""
    with naming(path), open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


T = TypeVar("T")
AGAIN = "download or create it again"
LARGEST_JSON = 1 << 30
"""Bytes of the largest JSON file that is read; the tokenizer of a large model has a tenth of them."""


def read_object(path: Path, kind: str, hint: str = AGAIN) -> Json:
    """The JSON object in ``path``, a file of another program that every ``kind`` (such as "model folder") has.

    Raises ``MissingError`` if there is no such file, ``InputError`` if it holds anything else.
    """
    content = _content(path, kind, hint)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = f"is not JSON ({error})" if content.strip() else "is empty"
        raise InputError(f"{path} {reason}", hint) from None
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object", hint)
    return value


_LONGEST_VALUE = 80
"""Characters of a wrong value in a message."""


def read_own(path: Path, kind: type[T], owner: str, hint: str = AGAIN) -> T:
    """The content of ``path``, a file that every ``owner`` (such as "search index") has, as a ``kind``.

    ``kind`` is a dataclass, or another type that pydantic knows. Types are strict: ``"1"`` is no number. Raises
    ``MissingError`` if there is no such file, ``InputError`` with the file, the key and the expected value.
    """
    return parse_own(_content(path, owner, hint), kind, path, hint)


def read_own_object(path: Path, kind: type[Any], owner: str, hint: str = AGAIN) -> Json:
    """``read_own`` as an object with all of its keys; those of ``kind`` are checked."""
    content = _content(path, owner, hint)
    parse_own(content, kind, path, hint)
    value: Json = json.loads(content)
    return value


def read_own_lines(path: Path, hint: str = AGAIN) -> Iterator[Json]:
    """The objects in a file of JSON lines; raises ``InputError`` naming a line that holds anything else."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            yield parse_own(line, dict[str, Any], f"{path}, line {number}", hint)


def parse_own(content: bytes | str, kind: type[T], source: Path | str, hint: str = AGAIN) -> T:
    """``read_own`` of the text of ``source``."""
    from pydantic import ValidationError

    try:
        return _adapter(cast("Hashable", kind)).validate_json(content, strict=True)
    except ValidationError as error:
        raise InputError(f"{source}{_describe(error, content)}", hint) from None
    except GreenadaptError as error:  # of a configuration, which checks more than types
        raise InputError(f"{source}: {error.message}", hint) from None


def _content(path: Path, owner: str, hint: str) -> bytes:
    try:
        return read_small(path, LARGEST_JSON)
    except IsADirectoryError:
        raise InputError(f"{path} is not a file", hint) from None
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(f"{path.parent} is not a {owner}: it has no {path.name}", hint) from None


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _describe(error: Any, content: bytes | str) -> str:
    """The first error, in words that follow the name of the file."""
    [first, *_] = error.errors(include_url=False, include_context=False)
    key, message = ".".join(map(str, first["loc"])), str(first["msg"])
    if first["type"] == "json_invalid":
        return f" is not JSON ({message.removeprefix('Invalid JSON: ')})" if content.strip() else " is empty"
    if first["type"] == "missing":
        return f" has no {key}"
    must_be = message.replace("Input should be", "must be")
    if not key:
        return f" is not a JSON {'list' if first['type'] == 'list_type' else 'object'} ({must_be})"
    value = json.dumps(first["input"], default=str)
    return f": {key} is {value if len(value) <= _LONGEST_VALUE else f'{value[:_LONGEST_VALUE]}…'}, {must_be}"
