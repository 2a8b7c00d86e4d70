"""The errors that users can act on, and the format of numbers, sizes and texts in messages.

The command line turns each error into one line and an exit code.
"""

import importlib.util
import re
import sys
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any

_MAX_CHARACTERS = 1400
"""Maximum number of characters of a message, which may quote names and words from files."""
_BEGIN, _END = 800, 500


class GreenadaptError(Exception):
    """An error that the user can act on.

    ``message`` says what is wrong, where, and both numbers; ``hint`` says what to do. Both are one line; the middle of
    a very long line is cut out.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = _shorten(message)
        self.hint = _shorten(hint)

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type["GreenadaptError"], tuple[str, str]]:
        # Worker processes pickle their errors for the parent, which needs message and hint.
        return type(self), (self.message, self.hint)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_BEGIN]} … {text[-_END:]}"


class UsageError(GreenadaptError):
    """The command line or a setting is not valid (exit code 2)."""

    exit_code = 2


class InputError(GreenadaptError):
    """The content of a file or an array is not valid."""


class MissingError(GreenadaptError):
    """A corpus, a model, a file, a package or the result of an earlier stage is missing."""


class ConflictError(GreenadaptError):
    """An existing result or a running command prevents this one."""


class LockedError(ConflictError):
    """Another run is writing the same results (exit code 69, EX_UNAVAILABLE of sysexits.h)."""

    exit_code = 69


class ResourceError(GreenadaptError):
    """Memory or disk space is not sufficient."""


def is_panic(error: BaseException) -> bool:
    """Whether ``error`` is a panic of a library's Rust code, which is not an ``Exception``."""
    return type(error).__name__ == "PanicException"


def first_line(error: BaseException) -> str:
    """The first line of the message of a library's error, or the error's type if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def require(extra: str, *packages: str, by: str, otherwise: str = "") -> None:
    """Raise ``MissingError`` unless ``packages``, which ``by`` needs and the ``extra`` installs, can be imported.

    ``otherwise`` is what the user can do without them.
    """
    if missing := [name for name in packages if not is_installed(name)]:
        hint = f'pip install "greenadapt[{extra}]"' + (f", or {otherwise}" if otherwise else "")
        raise MissingError(f"{by} needs {', '.join(missing)}, not installed", hint)


def is_installed(name: str) -> bool:
    """Whether the package ``name`` can be imported; it is not imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
    except ValueError:  # it was imported without a spec
        return sys.modules[name] is not None


def require_torch(by: str) -> None:
    """Raise ``MissingError`` unless the packages that training and its models need can be imported."""
    require("train", "torch", "transformers", "accelerate", "sklearn", by=by)


_KINDS = {
    int: "a number",
    float: "a number with a fraction",
    str: "a string",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


# Control characters of terminals, characters that change the direction of text, and characters that UTF-8 or XML do not
# allow. server/page/shared.js has the same list.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_ESCAPED = re.compile(f"{_HARMFUL.pattern}|[\u2028\u2029]")
_BREAKS = re.compile("[\t\n\x0b\x0c\r\x85\u2028\u2029]+")


def harmless(text: str) -> str:
    """Replace characters by which a name or a word from a file could control a terminal, change the direction of the
    text after it, or crash the program that draws it, with U+FFFD; ``text`` may have several lines.
    """
    return _HARMFUL.sub("\ufffd", text)


def one_line(text: str) -> str:
    """``harmless`` text on one line: a name with a line break cannot pass for a line of output."""
    return harmless(_BREAKS.sub(" ", text))


def harmless_json(text: str) -> str:
    """Escape the characters that ``harmless`` replaces, and line separators, in JSON, which keeps its value."""
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def pluralize(n: int, singular: str, plural: str | None = None) -> str:
    """``n`` and a noun, whose plural by default adds an s: ``1 file``, ``1,204 files``."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


_PLAIN_NAME = re.compile(r"[\w.-]+( [\w.-]+)*")
_MAX_NAMES = 20


def list_names(names: Iterable[str]) -> str:
    """The first 20 names of fields or columns and the number of the others; quotes those with unusual characters."""
    texts = [name if _PLAIN_NAME.fullmatch(name) else repr(name) for name in names]
    more = len(texts) - _MAX_NAMES
    return ", ".join(texts[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def as_decimal(value: float, digits: int, *, percent: bool = False, signed: bool = False) -> str:
    """Round a score half up to ``digits`` decimals, as papers do: 30.65 is ``30.7``.

    The float is first rounded to twelve significant digits, which gives the decimal number that it stands for.
    ``percent`` multiplies by 100, ``signed`` always writes the sign.
    """
    if not isfinite(value):
        return str(value)
    number = Decimal(f"{value:.12g}") * (100 if percent else 1)
    result = number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{result:+f}" if signed else f"{result:f}"


def as_percent(share: float, digits: int = 1) -> str:
    """Format a share as ``12.3%``, see ``as_decimal``."""
    return f"{as_decimal(share, digits, percent=True)}%"


def byte_size(n: int) -> str:
    """Format a number of bytes: ``26 bytes``, ``3.1 MB``, ``18.7 GB``."""
    if n < 100_000:
        return pluralize(n, "byte")
    return f"{n / 1e6:,.1f} MB" if n < 10_000_000_000 else f"{n / 1e9:,.1f} GB"


def duration(seconds: float) -> str:
    """Format a number of seconds: ``9.8 s``, ``12 min``, ``3.1 h``."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def time_left(seconds: float) -> str:
    """An estimate of the time left: ``less than a minute left``, ``about 48 minutes left``, ``about 5 hours left``."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute left"
    time = pluralize(minutes, "minute") if minutes < 180 else pluralize(round(seconds / 3600), "hour")
    return f"about {time} left"


def json_kind(value: Any) -> str:
    """The kind of a JSON value in words: ``a number``, ``a list``, ``null``, ``true``, ``false``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _KINDS.get(type(value), f"of type {type(value).__name__}")
