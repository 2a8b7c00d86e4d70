"""Numbers, sizes and kinds of JSON values as messages say them."""

from typing import Any

_KINDS = {
    int: "a number",
    float: "a number with a fraction",
    str: "a string",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


def counted(n: int, one: str, many: str | None = None) -> str:
    """``n`` and what is counted, ``many`` by default with an s: ``1 file``, ``1,204 files``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


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
