"""What is wrong with a request, in one sentence."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError

from greenadapt.errors import GreenadaptError


class TooLargeError(GreenadaptError):
    """A request asks for more than the limits allow."""


_REASONS = {
    "recursion limit exceeded": "is nested too deeply",
    "lone leading surrogate in hex escape": "has half a character, a surrogate without the other one,",
    "unexpected end of hex escape": "has an escape that is no whole character, such as half a pair of surrogates,",
    "invalid unicode code point": "is not UTF-8, or has an escape that is no character,",
    "number out of range": "has a number that is too long",
}
"""What the parser says → that in other words."""


def unreadable(said: str) -> str:
    """What is wrong with a body that is not JSON, by what the parser ``said``: what, and at which line and column."""
    reason, _, place = said.partition(" at line ")
    return f"the body {_REASONS.get(reason, f'is not JSON: {reason}')} at line {place}"


def sentence(error: RequestValidationError) -> str:
    """The first thing that is wrong: where, and what it must be."""
    [first, *_] = error.errors()
    _, *path = first["loc"]
    place = place_of(path)
    if not path:
        return "the body is not a JSON object: send one as /openapi.json describes"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place} is not known: leave it out, or see /openapi.json"
    return f"{place} {re.sub(r'^Input should ', 'must ', first['msg'])}"


def place_of(path: Sequence[Any]) -> str:
    """``texts[3]``; names of a request, which may be anything, are cut and made plain."""
    parts = [f"[{part}]" if isinstance(part, int) else "." + re.sub(r"[^\w-]", "?", str(part))[:40] for part in path]
    # A union adds the name of the type that was tried.
    return "".join(part for part in parts if not re.match(r"\.(str$|dict\?|list\?|function-)", part)).lstrip(".")
