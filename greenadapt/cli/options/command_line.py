"""The command line as it was given, for manifests and cards: without what only this machine or this run concerns."""

import shlex
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from greenadapt.storage.names import short

GIVEN: ContextVar[str | None] = ContextVar("given", default=None)
"""The command that is running."""
_LEFT_OUT = {"workspace", "force", "as_json", "quiet"}


def remember(ctx: Any, values: Mapping[str, Any], order: Iterable[Any]) -> None:
    """Keep the command of ``ctx`` in ``GIVEN``: ``values`` by name of its parameters, in the ``order`` given."""
    words: list[str] = []
    arguments: list[str] = []
    for parameter in dict.fromkeys(order):
        value = values.get(parameter.name)
        if parameter.name in _LEFT_OUT | {"out"} or value is None:
            continue
        each = [short(str(item)) for item in (value if isinstance(value, list | tuple) else [value])]
        if parameter.param_type_name == "argument":
            arguments += each
        elif getattr(parameter, "is_flag", False):
            words.append(_long(parameter.opts if value else parameter.secondary_opts))
        else:
            words += [word for item in each for word in (_long(parameter.opts), item)]
    if values.get("out") is not None:
        words += ["--out", "FOLDER"]
    names: list[str] = []
    while ctx.parent is not None:
        names.insert(0, ctx.info_name)
        ctx = ctx.parent
    GIVEN.set(shlex.join(["greenadapt", *names, *arguments, *words]))


def _long(options: list[str]) -> str:
    return next((option for option in options if option.startswith("--")), options[0])
