"""JSON that greenadapt itself wrote: read, bounded and checked in one place.

Callers describe the content of a file with a dataclass. Files may have been changed or damaged, or may come from
anybody, so the type of every value is checked before its use.
"""

import json
import re
from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from greenadapt.errors import GreenadaptError, InputError, MissingError
from greenadapt.storage.files import AGAIN, Json, read_bounded

T = TypeVar("T")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
"""A surrogate as JSON writes it in ASCII: Python accepts a lone one as text, pydantic does not."""
_LONGEST = 80
"""Characters of a wrong value in a message."""


def read_own(path: Path, kind: type[T], owner: str, hint: str = AGAIN) -> T:
    """The content of ``path``, a file that every ``owner`` (such as "search index") has, as a ``kind``.

    ``kind`` is a dataclass, or another type that pydantic knows. Types are strict: ``"1"`` is no number. Raises
    ``MissingError`` if there is no such file, ``InputError`` with the file, the key and the expected value.
    """
    return parse_own(_content(path, owner, hint), kind, path, hint)


def read_own_object(path: Path, kind: type[Any], owner: str, hint: str = AGAIN) -> Json:
    """``read_own`` as an ``OwnObject`` with all of its keys; those of ``kind`` are checked."""
    return parse_own_object(_content(path, owner, hint), kind, path, hint)


def read_own_lines(path: Path, hint: str = AGAIN) -> Iterator[Json]:
    """The objects in a file of JSON lines; raises ``InputError`` naming a line that holds anything else."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            yield parse_own_object(line, dict[str, Any], f"{path}, line {number}", hint)


def parse_own(content: bytes | str, kind: type[T], source: Path | str, hint: str = AGAIN) -> T:
    """``read_own`` of the text of ``source``."""
    from pydantic import ValidationError

    try:
        value: T = _adapter(cast("Hashable", kind)).validate_json(content, strict=True)
    except ValidationError as error:
        raise InputError(f"{source}{_described(error, content)}", hint) from None
    except GreenadaptError as error:  # of a configuration, which checks more than types
        raise InputError(f"{source}: {error.message}", hint) from None
    return value


def parse_own_object(content: bytes | str, kind: type[Any], source: Path | str, hint: str = AGAIN) -> Json:
    """``read_own_object`` of the text of ``source``."""
    encoded = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    parse_own(_SURROGATE.sub(rb"\\u003f", encoded), kind, source, hint)
    value: Json = json.loads(content, object_pairs_hook=lambda pairs: OwnObject(pairs, str(source), hint))
    return value


class OwnObject(dict[str, Any]):
    """A JSON object whose missing keys raise ``InputError`` with the name of the file."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = (), source: str = "", hint: str = "") -> None:
        super().__init__(pairs)
        self._source, self._hint = source, hint

    def __missing__(self, key: str) -> Any:
        raise InputError(f"{self._source} has no {key}", self._hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnObject, ([*self.items()], self._source, self._hint)


def _content(path: Path, owner: str, hint: str) -> bytes:
    try:
        return read_bounded(path, hint)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(f"{path.parent} is not a {owner}: it has no {path.name}", hint) from None


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _described(error: Any, content: bytes | str) -> str:
    """The first error, in words that follow the name of the file."""
    [first, *_] = error.errors(include_url=False, include_context=False)
    key, message = ".".join(map(str, first["loc"])), str(first["msg"])
    if first["type"] == "json_invalid":
        return f" is not JSON ({message.removeprefix('Invalid JSON: ')})" if content.strip() else " is empty"
    if first["type"] == "missing":
        return f" has no {key}"
    must_be = message.replace("Input should be", "must be")
    if not key:
        return f" is not a JSON object ({must_be})"
    value = json.dumps(first["input"], default=str)
    return f": {key} is {value if len(value) <= _LONGEST else f'{value[:_LONGEST]}…'}, {must_be}"
