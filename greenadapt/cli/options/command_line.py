"""The command line as it was given, for manifests and cards, without what concerns only this machine or this run."""

import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from itertools import chain
from typing import TYPE_CHECKING, Any

from greenadapt.storage.files import short

if TYPE_CHECKING:
    from greenadapt.stages.plan import Plan

GIVEN: ContextVar[str | None] = ContextVar("given", default=None)
"""The command that is running."""
_WORDS: ContextVar[Mapping[str, list[str]]] = ContextVar("words")
"""Its words by parameter; those of its name are at ""."""
PLAN: ContextVar["Plan | None"] = ContextVar("plan", default=None)
"""The plan of a dry run."""
_LEFT_OUT = {"workspace", "force", "as_json", "quiet", "verbose", "log_format", "config", "max_time", "nice"}


def remember(ctx: Any, values: Mapping[str, Any], order: Iterable[Any]) -> None:
    """Keep the command of ``ctx`` in ``GIVEN``: ``values`` by name of its parameters, in the ``order`` given.

    Values that are set in a file or in the environment belong to it: typed elsewhere, it makes the same result.
    """
    options: dict[str, list[str]] = {}
    arguments: dict[str, list[str]] = {}
    for parameter in dict.fromkeys(order):
        value = values.get(parameter.name)
        if parameter.name in _LEFT_OUT | {"out"} or value is None:
            continue
        each = [_shown(str(item)) for item in (value if isinstance(value, list | tuple) else [value])]
        if parameter.param_type_name == "argument":
            arguments[parameter.name] = each
        elif getattr(parameter, "is_flag", False):
            flag = parameter.opts if value else parameter.secondary_opts
            options[parameter.name] = [_long(flag)] if flag else []
        else:
            options[parameter.name] = [word for item in each for word in (_long(parameter.opts), item)]
    out = {"out": ["--out", "FOLDER"]} if values.get("out") is not None else {}
    _keep({"": command_words(ctx), **arguments, **options, **out})


def forget(names: Iterable[str]) -> None:
    """Leave parameters out of ``GIVEN``."""
    left_out = set(names)
    _keep({name: words for name, words in _WORDS.get().items() if name not in left_out})


def command_words(ctx: Any) -> list[str]:
    """The words that call the command of ``ctx``, such as ``corpus`` and ``prepare``."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name)
        ctx = ctx.parent
    return words


def _keep(words: Mapping[str, list[str]]) -> None:
    _WORDS.set(words)
    GIVEN.set(shlex.join(["greenadapt", *chain.from_iterable(words.values())]))


def _shown(value: str) -> str:
    with suppress(OSError, RuntimeError):  # too long for a file's name, or the home of an unknown user
        value = short(value)
    return value.encode("utf-8", "replace").decode("utf-8")  # as JSON takes it


def _long(options: list[str]) -> str:
    return next((option for option in options if option.startswith("--")), options[0])
