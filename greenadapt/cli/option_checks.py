"""Checks of options: names that are not UTF-8, and options without effect."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from greenadapt.cli.options import FIELDS
from greenadapt.cli.settings import ignore_settings, source_of
from greenadapt.errors import UsageError
from greenadapt.fields import refuse_without_effect
from greenadapt.store.files import expand_home, require_utf8


def require_names(ctx: Any) -> None:
    """Raise ``InputError`` for a value that is not UTF-8, or a path that leads to such a name."""
    for value in ctx.params.values():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Path) or (isinstance(item, str) and os.path.lexists(expand_home(item))):
                require_utf8(item)
                with suppress(ValueError):  # of a null byte
                    require_utf8(os.path.realpath(expand_home(item)))
            elif isinstance(item, str):
                require_utf8(item, "give it in UTF-8, the encoding that the terminal should have")


def explicit_parameters(ctx: typer.Context) -> set[str]:
    """The parameters that the user set: on the command line, in a file or in the environment."""
    return {name for name in ctx.params if source_of(ctx, name) != "DEFAULT"}


def refuse(ctx: typer.Context, names: Iterable[str], why: str) -> None:
    """Raise ``UsageError`` with the option and ``why`` if one of the parameters ``names`` is on the command line.

    The caller must ignore their values.
    """
    refused = {*names}
    for parameter in ctx.command.params:
        if parameter.name in refused and source_of(ctx, parameter.name) == "COMMANDLINE":
            raise UsageError(f"{parameter.opts[0]} {why}")
    ignore_settings(ctx, *refused & ctx.params.keys())


def refuse_beside_folders(ctx: typer.Context, folders: object) -> None:
    """Raise ``UsageError`` if --corpus or --model, which select results in the workspace, is combined with folders."""
    if folders:
        refuse(ctx, ["corpus", "model"], "chooses from the workspace, but folders are given: leave out one of the two")


def refuse_field(ctx: typer.Context, sources: Iterable[str | None], format: str | None) -> None:  # noqa: A002
    """Raise ``UsageError`` if --field is given and none of ``sources`` has fields."""
    from greenadapt.corpus.recipes import why_no_fields

    if why := why_no_fields([source for source in sources if source is not None], format):
        refuse(ctx, ["field"], why)


def ignore_unused(ctx: Any) -> None:
    """Raise ``UsageError`` for an option on the command line without the one that it needs (``Option.needs``).

    Such values from a file or the environment are reset to their defaults.
    """
    for name, field in getattr(ctx.command.callback, FIELDS).items():
        if not field.option.needs or source_of(ctx, name) == "DEFAULT":
            continue
        try:
            refuse_without_effect(field, ctx.params)
        except UsageError:
            if source_of(ctx, name) == "COMMANDLINE":
                raise
            ignore_settings(ctx, name)
