"""Checks of options: paths that are read or written, values that are set for all commands, options without effect."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from greenadapt.cli.options import FIELDS, forget
from greenadapt.cli.settings import used_settings
from greenadapt.errors import UsageError
from greenadapt.fields import option_fields, refuse_without_effect
from greenadapt.store.files import expanded, require_utf8

READ = frozenset({
    "alignment", "base", "compare", "config", "context", "corpus", "corpus_argument", "data", "dev",
    "documents", "folder", "folders", "general", "general_text", "index", "memory", "model", "name", "questions",
    "reference", "restrict_to", "source", "tasks", "test", "text", "train", "unlabelled", "vectors",
})  # fmt: skip
"""Parameters of commands that are, or may be, files or folders to read."""
WRITTEN = frozenset({"file", "logits", "out", "predictions", "workspace"})
"""Parameters that are files or folders to write."""


def require_names(ctx: Any) -> None:
    """Raise ``InputError`` for a value, or the resolved path of one, that is not UTF-8."""
    for name, value in ctx.params.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, str) and name not in READ | WRITTEN:
                require_utf8(item, "give it in UTF-8, the encoding that the terminal should have")
            elif isinstance(item, str | Path):
                require_utf8(item)
                with suppress(ValueError):  # of a null byte
                    require_utf8(os.path.realpath(expanded(item)))


def explicit_parameters(ctx: typer.Context) -> set[str]:
    """The parameters that the user set: on the command line, in a file or in the environment."""
    sources: dict[str, Any] = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name for name, source in sources.items() if source.name != "DEFAULT"}


def explicit_fields(ctx: typer.Context, config: type) -> frozenset[str]:
    """The fields of a configuration that the user set."""
    parameters = explicit_parameters(ctx)
    return frozenset(field.name for field in option_fields(config).values() if field.parameter in parameters)


def set_for_all(ctx: typer.Context) -> set[str]:
    """The parameters whose values are set for all commands, and so may have no effect in this one."""
    return {name for name, setting in used_settings(ctx).items() if setting.is_for_all}


def refuse(ctx: typer.Context, names: Iterable[str], why: str) -> None:
    """Raise ``UsageError`` with the option and ``why`` if the user set one of the parameters ``names``.

    Values that are set for all commands do not count: they are removed from the recorded command, and the caller must
    ignore them.
    """
    refused, for_all = {*names}, set_for_all(ctx)
    explicit = explicit_parameters(ctx) - for_all
    for parameter in ctx.command.params:
        if parameter.name in refused & explicit:
            raise UsageError(f"{parameter.opts[0]} {why}")
    forget(for_all & refused)


def refuse_beside_folders(ctx: typer.Context) -> None:
    """Raise ``UsageError`` if --corpus or --model, which select results in the workspace, is combined with folders."""
    refuse(ctx, ["corpus", "model"], "chooses from the workspace, but folders are given: leave out one of the two")


def own_values(ctx: typer.Context, *names: str) -> list[Any]:
    """The values of parameters, with ``None`` for values that are set for all commands."""
    for_all = set_for_all(ctx)
    forget(for_all & {*names})
    return [None if name in for_all else ctx.params[name] for name in names]


def refuse_field(ctx: typer.Context, sources: Iterable[str | None], format: str | None) -> None:  # noqa: A002
    """Raise ``UsageError`` if --field is set and none of ``sources`` has fields."""
    from greenadapt.corpus.recipes import why_no_fields

    if why := why_no_fields([source for source in sources if source is not None], format):
        refuse(ctx, ["field"], why)


def leave_out_unused(ctx: Any) -> None:
    """Reset parameters that are set for all commands and have no effect here (``Option.needs``) to their defaults.

    Raises ``UsageError`` for other parameters that are set and have no effect.
    """
    for_all = set_for_all(ctx)
    parameters = {parameter.name: parameter for parameter in ctx.command.params}
    for name, field in getattr(ctx.command.callback, FIELDS, {}).items():
        if not field.option.needs or name not in explicit_parameters(ctx):
            continue
        try:
            refuse_without_effect(field, ctx.params)
        except UsageError:
            if name not in for_all:
                raise
            ctx.params[name] = parameters[name].default
            forget([name])
