"""Read and write JSON and JSON lines; hash files and JSON."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.storage.publish import naming, sync_file
from greenadapt.storage.small_files import read_small

Json = dict[str, Any]


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def hash_json(value: object) -> str:
    """SHA-256 of a JSON value in canonical form, hexadecimal."""
    return sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def plain(value: Any) -> Any:
    """``value`` after a round trip through JSON, to compare it with a stored manifest."""
    return json.loads(json.dumps(value, default=lambda item: item.item() if hasattr(item, "item") else str(item)))


def write_json(path: Path, value: object) -> None:
    """Write JSON for people and programs: indented, UTF-8, ending in a newline."""
    with naming(path):
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


def replace_json(path: Path, value: object) -> None:
    """The same in place of what is there; whoever reads ``path`` sees the old or the new, whole.

    A killed process leaves at most a hidden file.
    """
    part = path.with_name(f".{path.name}.part")
    write_json(part, value)
    sync_file(part)
    part.replace(path)


def write_lines(path: Path, rows: Iterable[Json]) -> None:
    """Write JSON lines, UTF-8."""
    with naming(path), open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


AGAIN = "download or create it again"


LARGEST_JSON = 1 << 30
"""Bytes of a file of JSON that is read; the tokenizer of a large model has a tenth of it."""


def read_bounded(path: Path, hint: str = AGAIN) -> bytes:
    """The content of a file of JSON; raises ``InputError`` for what is no file, or larger than ``LARGEST_JSON``."""
    try:
        return read_small(path, LARGEST_JSON)
    except IsADirectoryError:
        raise InputError(f"{path} is not a file", hint) from None


def read_json(path: Path, hint: str = AGAIN) -> Any:
    """The JSON value in ``path``, a file of another program; for greenadapt's own see ``own_json``.

    Raises ``InputError`` if it holds anything else.
    """
    content = read_bounded(path, hint)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = f"is not JSON ({error})" if content.strip() else "is empty"
        raise InputError(f"{path} {reason}", hint) from None


def read_object(path: Path, kind: str, hint: str = AGAIN) -> Json:
    """The JSON object in ``path``, a file of every ``kind`` (such as "model folder").

    Raises ``MissingError`` if there is no such file, ``InputError`` if it holds anything else.
    """
    try:
        value = read_json(path, hint)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(f"{path.parent} is not a {kind}: it has no {path.name}", hint) from None
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object", hint)
    return value


@contextmanager
def described_in(file: Path | str, hint: str = AGAIN) -> Iterator[None]:
    """Raise ``InputError`` naming ``file`` if its content is invalid."""
    try:
        yield
    except InputError as error:
        if error.message.startswith(str(file)):
            raise
        raise InputError(f"{file}: {error.message}", error.hint) from None
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else repr(error)
        raise InputError(f"{file} is broken ({reason})", hint) from None
