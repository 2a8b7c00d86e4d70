"""The errors that a user can cause or meet, and numbers, sizes and texts as messages show them.

The command line turns each error into one line and an exit code.
"""

import importlib.util
import re
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any

_LONGEST = 1400
"""Characters of a message, in which names and words from files may be of any length."""
_BEGIN, _END = 800, 500


class GreenadaptError(Exception):
    """Something the user can act on.

    ``message`` says what is wrong, where, and both numbers; ``hint`` says what to do. Both are one line, and the middle
    of a very long one is left out.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = _shortened(message)
        self.hint = _shortened(hint)

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type["GreenadaptError"], tuple[str, str]]:
        # Worker processes send their errors to the parent, which must get message and hint back.
        return type(self), (self.message, self.hint)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_BEGIN]} … {text[-_END:]}"


class UsageError(GreenadaptError):
    """The command line or a setting asks for something that makes no sense (exit code 2)."""

    exit_code = 2


class InputError(GreenadaptError):
    """A file or an array is not what it should be."""


class MissingError(GreenadaptError):
    """A corpus, a model, a file or an earlier stage is not there."""


class ConflictError(GreenadaptError):
    """Something that is there already, or runs already, stands in the way."""


class LockedError(ConflictError):
    """Another run is writing the same results (exit code 69, EX_UNAVAILABLE of sysexits.h)."""

    exit_code = 69


class ResourceError(GreenadaptError):
    """Memory or disk would not be enough."""


def is_panic(error: BaseException) -> bool:
    """Whether Rust's code in a library gave up; such an error is no ``Exception``."""
    return type(error).__name__ == "PanicException"


def first_line(error: BaseException) -> str:
    """The first line of what a library's error says, or the error's type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def require(extra: str, *packages: str, by: str, otherwise: str = "") -> None:
    """Raise ``MissingError`` unless ``packages``, which ``by`` needs and the ``extra`` installs, can be imported.

    ``otherwise`` is what the user can do without them.
    """
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        hint = f'pip install "greenadapt[{extra}]"' + (f", or {otherwise}" if otherwise else "")
        raise MissingError(f"{by} needs {', '.join(missing)}, not installed", hint)


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


# What terminals take as commands; what turns the direction of writing; what no encoding and no XML has. The pages of
# `serve` have the same: server/page/page.js.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_ESCAPED = re.compile(f"{_UNSHOWN.pattern}|[\u2028\u2029]")
_BREAKS = re.compile("[\t\n\x0b\x0c\r\x85\u2028\u2029]+")


def harmless(text: str) -> str:
    """``text``, which may have several lines, with U+FFFD for characters by which a name or a word from a file could
    control a terminal, turn the direction of what is shown after it, or end the program that draws it.
    """
    return _UNSHOWN.sub("\ufffd", text)


def one_line(text: str) -> str:
    """The same on one line: a name with a line break cannot pass for a line of its own."""
    return harmless(_BREAKS.sub(" ", text))


def harmless_json(text: str) -> str:
    """JSON with escapes for the same, and for what ends a line elsewhere, so that the value stays as it is."""
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def counted(n: int, one: str, many: str | None = None) -> str:
    """``n`` and what is counted, ``many`` by default with an s: ``1 file``, ``1,204 files``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def rounded(value: float, digits: int, *, percent: bool = False, signed: bool = False) -> str:
    """A score as tables show it: ``digits`` behind the point, half up, as papers round. 30.65 is ``30.7``.

    The decimal number that is meant is rounded, not the float nearest to it, which is a little less or more; it is the
    one of twelve significant digits. ``percent`` multiplies by 100, ``signed`` always writes the sign.
    """
    if not isfinite(value):
        return str(value)
    number = Decimal(f"{value:.12g}") * (100 if percent else 1)
    shown = number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{shown:+f}" if signed else f"{shown:f}"


def as_percent(share: float, digits: int = 1) -> str:
    """A share as ``12.3%``, see ``rounded``."""
    return f"{rounded(share, digits, percent=True)}%"


def byte_size(n: int) -> str:
    """``n`` bytes as people read them: ``26 bytes``, ``3.1 MB``, ``18.7 GB``."""
    if n < 100_000:
        return counted(n, "byte")
    return f"{n / 1e6:,.1f} MB" if n < 10_000_000_000 else f"{n / 1e9:,.1f} GB"


def duration(seconds: float) -> str:
    """Seconds as people read them: ``9.8 s``, ``12 min``, ``3.1 h``."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def json_kind(value: Any) -> str:
    """What a value of JSON is: ``a number``, ``a list``, ``null``; true and false are themselves."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return _KINDS.get(type(value), f"of type {type(value).__name__}")
