"""JSON that greenadapt itself wrote: read, bounded and checked in one place.

Whoever reads a file of greenadapt's own says with a dataclass what is to be in it. Files may have been changed or
damaged since, or come from anybody, so nothing is used before its type was compared.
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
"""As JSON writes it in ASCII: one alone is text to Python, and to no other."""
_SHOWN = 80
"""Characters of a wrong value in a message."""


def read_own(path: Path, kind: type[T], what: str, hint: str = AGAIN) -> T:
    """The content of ``path``, a file of every ``what`` (such as "search index"), as a ``kind``.

    ``kind`` is a dataclass, or another type that pydantic knows. Values are compared strictly: ``"1"`` is no number.
    Raises ``MissingError`` if there is no such file, ``InputError`` with the file, the key and what it must be.
    """
    return parse_own(_content(path, what, hint), kind, path, hint)


def read_own_object(path: Path, kind: type[Any], what: str, hint: str = AGAIN) -> Json:
    """The same, as an ``OwnObject`` with all of its keys, of which those of ``kind`` are checked."""
    return parse_own_object(_content(path, what, hint), kind, path, hint)


def read_own_lines(path: Path, hint: str = AGAIN) -> Iterator[Json]:
    """The objects in a file of JSON lines; raises ``InputError`` naming the line if one is none."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            yield parse_own_object(line, dict[str, Any], f"{path}, line {number}", hint)


def parse_own(content: bytes | str, kind: type[T], place: Path | str, hint: str = AGAIN) -> T:
    """The same of text that was found in ``place``."""
    from pydantic import ValidationError

    try:
        value: T = _adapter(cast("Hashable", kind)).validate_json(content, strict=True)
    except ValidationError as error:
        raise InputError(f"{place}{_wrong(error, content)}", hint) from None
    except GreenadaptError as error:  # of a configuration, which checks more than types
        raise InputError(f"{place}: {error.message}", hint) from None
    return value


def parse_own_object(content: bytes | str, kind: type[Any], place: Path | str, hint: str = AGAIN) -> Json:
    """``read_own_object`` of text that was found in ``place``."""
    checked = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    parse_own(_SURROGATE.sub(rb"\\u003f", checked), kind, place, hint)
    value: Json = json.loads(content, object_pairs_hook=lambda pairs: OwnObject(pairs, str(place), hint))
    return value


class OwnObject(dict[str, Any]):
    """A JSON object whose missing keys raise ``InputError`` with the name of the file."""

    def __init__(self, pairs: Iterable[tuple[str, Any]] = (), place: str = "", hint: str = "") -> None:
        super().__init__(pairs)
        self._from = place, hint

    def __missing__(self, key: str) -> Any:
        place, hint = self._from
        raise InputError(f"{place} has no {key}", hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return OwnObject, ([*self.items()], *self._from)


def _content(path: Path, what: str, hint: str) -> bytes:
    try:
        return read_bounded(path, hint)
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(f"{path.parent} is not a {what}: it has no {path.name}", hint) from None


@cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _wrong(error: Any, content: bytes | str) -> str:
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
    shown = json.dumps(first["input"], default=str)
    return f": {key} is {shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'}, {must_be}"
