"""Options that are read or written, so that nothing is written onto what is read, and options without effect."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from greenadapt.cli.options import FIELDS, command_words, forget
from greenadapt.cli.settings import used_settings
from greenadapt.errors import UsageError
from greenadapt.fields import option_fields, refuse_without_effect
from greenadapt.storage.files import expanded, own_folder, require_utf8

READ = frozenset({
    "add_to", "alignment", "base", "compare", "config", "context", "corpus", "corpus_argument", "data", "dev",
    "documents", "folder", "folders", "general", "general_text", "index", "memory", "model", "name", "questions",
    "reference", "restrict_to", "source", "tasks", "test", "text", "train", "unlabelled", "vectors",
})  # fmt: skip
"""Parameters of commands that are files or folders, or may be."""
WRITTEN = frozenset({
    "file", "logits", "null_odds", "out", "png", "predictions", "svg", "workspace",
})  # fmt: skip
"""Those that a command writes or adds to."""
OTHER = frozenset({
    "address", "allow_host", "cluster", "command", "exclude", "field", "format", "host", "label_field",
    "larger_than", "layers", "max_body", "max_cache", "max_document_bytes", "max_memory", "max_time",
    "memory_layers", "memory_source", "message", "older_than", "only", "query", "question", "remove",
    "report_to", "repo", "revision", "task", "text_field", "variant", "words",
})  # fmt: skip
"""Those whose values are texts."""
_JOINED = {"finetune": "add_to", "tasks": "folder"}
"""Where the purpose of a command is to change a folder that it reads."""
_KEYWORDS = {"memory": "base"}


def require_names(ctx: Any) -> None:
    """Raise ``InputError`` for a path, or another value, whose bytes are not UTF-8, before any work."""
    for name, given in ctx.params.items():
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, str | Path):
                require_utf8(value)
            if isinstance(value, Path) or (isinstance(value, str) and name in READ | WRITTEN):
                with suppress(ValueError):  # of a null byte
                    require_utf8(os.path.realpath(expanded(value)))


def read_by(ctx: Any) -> dict[str, str]:
    """The files and folders that a command was given to read, by option; those that are not there do not count."""
    command = " ".join(command_words(ctx))
    found: dict[str, str] = {}
    for parameter in ctx.command.params:
        name, given = parameter.name, ctx.params.get(parameter.name)
        if name not in READ or given is None or _JOINED.get(command) == name:
            continue
        is_corpus = name == "corpus" or (name == "name" and command.startswith("corpus"))
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.opts[0].upper()
        for value in map(str, given if isinstance(given, list | tuple) else [given]):
            is_name = value == _KEYWORDS.get(name) or (
                is_corpus and (own_folder("corpora") / f"{value}.toml").is_file()
            )
            if value and not is_name and expanded(value).exists():
                found[f"{option} {value}" if option in found else option] = str(Path(value))
    return found


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


def refuse_beside_folders(ctx: typer.Context) -> None:
    """Raise ``UsageError`` if --corpus or --model, which choose from the workspace, was given beside folders."""
    why = "chooses from the workspace, but folders are given: leave out one of the two"
    refuse(ctx, {"corpus": "--corpus", "model": "--model"}, why)


def own(ctx: typer.Context, *names: str) -> list[Any]:
    """The values of parameters without what is set for all commands, which is ``None`` instead."""
    for_all = set_for_all(ctx)
    forget(for_all & {*names})
    return [None if name in for_all else ctx.params[name] for name in names]


def refuse_field(ctx: typer.Context, sources: Iterable[str | None], format: str | None) -> None:  # noqa: A002
    """Raise ``UsageError`` if --field was given and none of the ``sources`` of documents has fields."""
    from greenadapt.corpus.recipes import why_no_fields

    if why := why_no_fields([source for source in sources if source is not None], format):
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
