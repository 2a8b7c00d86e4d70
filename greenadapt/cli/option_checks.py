"""Checks of options: names that are not UTF-8, and options without effect."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from greenadapt.cli.options import FIELDS, forget
from greenadapt.errors import UsageError
from greenadapt.fields import refuse_without_effect
from greenadapt.store.files import expanded, require_utf8


def require_names(ctx: Any) -> None:
    """Raise ``InputError`` for a value that is not UTF-8, or a path that leads to such a name."""
    for value in ctx.params.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Path) or (isinstance(item, str) and os.path.lexists(expanded(item))):
                require_utf8(item)
                with suppress(ValueError):  # of a null byte
                    require_utf8(os.path.realpath(expanded(item)))
            elif isinstance(item, str):
                require_utf8(item, "give it in UTF-8, the encoding that the terminal should have")


def explicit_parameters(ctx: typer.Context) -> set[str]:
    """The parameters that the user set: on the command line, in a file or in the environment."""
    return {name for name in ctx.params if _source(ctx, name) != "DEFAULT"}


def _source(ctx: typer.Context, name: str) -> str:
    source: Any = ctx.get_parameter_source(name)
    return str(source.name)


def refuse(ctx: typer.Context, names: Iterable[str], why: str) -> None:
    """Raise ``UsageError`` with the option and ``why`` if one of the parameters ``names`` is on the command line.

    Values from a file or the environment are removed from the recorded command, and the caller must ignore them.
    """
    refused = {*names}
    for parameter in ctx.command.params:
        if parameter.name in refused and _source(ctx, parameter.name) == "COMMANDLINE":
            raise UsageError(f"{parameter.opts[0]} {why}")
    forget(refused)


def refuse_beside_folders(ctx: typer.Context) -> None:
    """Raise ``UsageError`` if --corpus or --model, which select results in the workspace, is combined with folders."""
    refuse(ctx, ["corpus", "model"], "chooses from the workspace, but folders are given: leave out one of the two")


def values_on_command_line(ctx: typer.Context, *names: str) -> list[Any]:
    """The values of parameters, with ``None`` for those from a file or the environment, which have no effect."""
    elsewhere = {name for name in names if _source(ctx, name) != "COMMANDLINE"}
    forget(elsewhere)
    return [None if name in elsewhere else ctx.params[name] for name in names]


def refuse_field(ctx: typer.Context, sources: Iterable[str | None], format: str | None) -> None:  # noqa: A002
    """Raise ``UsageError`` if --field is given and none of ``sources`` has fields."""
    from greenadapt.corpus.recipes import why_no_fields

    if why := why_no_fields([source for source in sources if source is not None], format):
        refuse(ctx, ["field"], why)


def leave_out_unused(ctx: Any) -> None:
    """Raise ``UsageError`` for an option on the command line without the one that it needs (``Option.needs``).

    Such values from a file or the environment are reset to their defaults.
    """
    parameters = {parameter.name: parameter for parameter in ctx.command.params}
    for name, field in getattr(ctx.command.callback, FIELDS, {}).items():
        if not field.option.needs or _source(ctx, name) == "DEFAULT":
            continue
        try:
            refuse_without_effect(field, ctx.params)
        except UsageError:
            if _source(ctx, name) == "COMMANDLINE":
                raise
            ctx.params[name] = parameters[name].default
            forget([name])
