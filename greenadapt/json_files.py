"""Reading the JSON objects that say what a folder holds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from greenadapt.errors import InputError, MissingError, UsageError

Json = dict[str, Any]
_AGAIN = "fetch or make it again"


def read_object(path: Path, kind: str, hint: str = _AGAIN) -> Json:
    """The JSON object in ``path``, a file that every ``kind`` (such as "model folder") has.

    Raises ``MissingError`` where there is no such file, ``InputError`` that names it where it holds anything else.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingError(f"{path.parent} is no {kind}: it has no {path.name}", hint) from None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = f"is not JSON ({error})" if content.strip() else "is empty"
        raise InputError(f"{path} {reason}", hint) from None
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a JSON object", hint)
    return value


@contextmanager
def described_in(file: Path, hint: str = _AGAIN) -> Iterator[None]:
    """Raise ``InputError`` that names ``file`` where what it says cannot be used."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file}: {error.message}", error.hint) from None
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else repr(error)
        raise InputError(f"{file} is broken ({reason})", hint) from None
