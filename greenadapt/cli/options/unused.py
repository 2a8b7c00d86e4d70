"""Options that have no effect in the company of others: refused where the user gave them, left out where they are set
for all commands.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import typer

from greenadapt.cli.options.command_line import forget
from greenadapt.cli.options.generated import FIELDS
from greenadapt.cli.options.settings import used_settings
from greenadapt.errors import UsageError
from greenadapt.fields import option_fields, refuse_without_effect


def given(ctx: typer.Context) -> set[str]:
    """The parameters that the user gave, also in a file or in the environment."""
    sources: dict[str, Any] = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name for name, source in sources.items() if source.name != "DEFAULT"}


def named(ctx: typer.Context, config: type) -> frozenset[str]:
    """The fields of a configuration that the user gave a value for."""
    parameters = given(ctx)
    return frozenset(field.name for field in option_fields(config).values() if field.parameter in parameters)


def set_for_all(ctx: typer.Context) -> set[str]:
    """The parameters whose values are set for all commands, since others have a use for them."""
    return {name for name, setting in used_settings(ctx).items() if setting.is_for_all}


def refuse(ctx: typer.Context, options: Mapping[str, str], why: str) -> None:
    """Raise ``UsageError`` where one of ``options``, by the parameter's name, was given; ``why`` ends it.

    What is set for all commands does not count: it is left out of the command that results keep, and the caller has to
    ignore it.
    """
    for_all = set_for_all(ctx)
    for name, option in options.items():
        if name in given(ctx) - for_all:
            raise UsageError(f"{option} {why}")
    forget(for_all & options.keys())


def own(ctx: typer.Context, *names: str) -> list[Any]:
    """The values of parameters without what is set for all commands, which is ``None`` instead."""
    for_all = set_for_all(ctx)
    forget(for_all & {*names})
    return [None if name in for_all else ctx.params[name] for name in names]


def refuse_field(ctx: typer.Context, sources: Iterable[str | None], format: str | None) -> None:  # noqa: A002
    """Raise ``UsageError`` if --field was given and none of the ``sources`` of documents has fields."""
    from greenadapt.corpus.recipes import may_have_fields

    named = [source for source in sources if source is not None]
    if named and not any(may_have_fields(source, format) for source in named):
        why = f"is for JSON lines and tables, and {named[0]} is neither: leave it out, or say what it is with --format"
        refuse(ctx, {"field": "--field"}, why)


def leave_out_unused(ctx: Any) -> None:
    """Give parameters whose options lack what they need (``Option.needs``) their defaults if they are set for all
    commands; raises ``UsageError`` for any other that was given.
    """
    for_all = set_for_all(ctx)
    parameters = {parameter.name: parameter for parameter in ctx.command.params}
    for name, field in getattr(ctx.command.callback, FIELDS, {}).items():
        if not field.option.needs or name not in given(ctx):
            continue
        try:
            refuse_without_effect(field, ctx.params)
        except UsageError:
            if name not in for_all:
                raise
            ctx.params[name] = parameters[name].default
            forget([name])
