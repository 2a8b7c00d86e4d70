"""The command line as it was given, for manifests and cards, without what concerns only this machine or this run."""

import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from greenadapt.storage.names import short

GIVEN: ContextVar[str | None] = ContextVar("given", default=None)
"""The command that is running."""
_LEFT_OUT = {"workspace", "force", "as_json", "quiet", "max_time", "nice"}


def remember(ctx: Any, values: Mapping[str, Any], order: Iterable[Any]) -> None:
    """Keep the command of ``ctx`` in ``GIVEN``: ``values`` by name of its parameters, in the ``order`` given."""
    words: list[str] = []
    arguments: list[str] = []
    for parameter in dict.fromkeys(order):
        value = values.get(parameter.name)
        if parameter.name in _LEFT_OUT | {"out"} or value is None:
            continue
        each = [_shown(str(item)) for item in (value if isinstance(value, list | tuple) else [value])]
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


def _shown(value: str) -> str:
    with suppress(OSError, RuntimeError):  # too long for a file's name, or the home of an unknown user
        value = short(value)
    return value.encode("utf-8", "replace").decode("utf-8")  # as JSON takes it


def _long(options: list[str]) -> str:
    return next((option for option in options if option.startswith("--")), options[0])
