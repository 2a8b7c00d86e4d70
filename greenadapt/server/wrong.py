"""What is wrong with a request, in one sentence."""

import re
from typing import Any

from fastapi.exceptions import RequestValidationError

from greenadapt.errors import GreenadaptError


class TooLargeError(GreenadaptError):
    """A request asks for more than the limits allow."""


def sentence(error: RequestValidationError) -> str:
    """The first thing that is wrong: where, and what it must be."""
    [first, *_] = error.errors()
    _, *path = first["loc"]
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {first['ctx']['error']} at character {path[0]}"
    place = _place(path)
    if not path:
        return "the body is not a JSON object: send one as /openapi.json describes"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "extra_forbidden":
        return f"{place} is not known: leave it out, or see /openapi.json"
    return f"{place} {re.sub(r'^Input should ', 'must ', first['msg'])}"


def _place(path: list[Any]) -> str:
    """``texts[3]``; names of a request, which may be anything, are cut and made plain."""
    parts = [f"[{part}]" if isinstance(part, int) else "." + re.sub(r"[^\w-]", "?", str(part))[:40] for part in path]
    # A union adds the name of the type that was tried.
    return "".join(part for part in parts if not re.match(r"\.(str$|dict\?|list\?|function-)", part)).lstrip(".")
