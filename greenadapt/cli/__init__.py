"""The command line: one file a command, and here the application with its one error boundary."""

import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from greenadapt.cli.boundary import ClosedOutput, exit_on_sigterm, in_words, require_written
from greenadapt.cli.options.command_line import remember
from greenadapt.cli.options.generated import FIELDS, with_options, with_quiet
from greenadapt.errors import UsageError
from greenadapt.fields import allowed
from greenadapt.storage.publish import STDOUT, naming

_ORDER = [
    "adapt",
    "corpus",
    "w2v",
    "align",
    "expand",
    "interpolate",
    "neighbours",
    "assess",
    "export",
    "pretrain",
    "params",
    "finetune",
    "tasks",
    "evaluate",
    "predict",
    "qa",
    "cost",
    "report",
    "demo",
]


class _Group(TyperGroup):
    """The commands, behind the one boundary of errors."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line; what it printed is written when this ends."""
        try:
            return super().main(*arguments, **options)
        finally:
            with in_words():
                require_written()

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line, which may print help."""
        with in_words(), naming(STDOUT):
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with in_words(ctx):
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of the work."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)


class _Command(TyperCommand):
    """Refuses values in one line; also an empty one (an unset variable, say), which as a path is the current folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in self.params:
            value = given.get(parameter.name)
            if value == "" or (isinstance(value, list | tuple) and "" in value):
                name = parameter.opts[0]
                shown = name if name.startswith("-") else name.upper()
                raise UsageError(f"{shown} is empty", "give it a value, or leave it out (is a variable not set?)")
        remember(ctx, given, order)
        try:
            with naming(STDOUT):  # which --help prints to
                return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            raise UsageError(self._in_one_line(error, given)) from None

    def _in_one_line(self, error: typer.BadParameter, given: dict[str, Any]) -> str:
        name = getattr(error.param, "name", None)
        field = getattr(self.callback, FIELDS, {}).get(name)
        if name not in given or error.param is None:
            return error.format_message()
        wrong = f"{error.param.opts[0]} is {given[name]!r}"
        return f"{wrong}, must be {allowed(field.kind)}" if field else f"{wrong}: {error.message}"


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Adapt a pretrained language model to a domain for a few CPU minutes.",
)


def _version(value: bool) -> None:
    if value:
        from greenadapt import __version__

        typer.echo(f"greenadapt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    from greenadapt.cli.output.console import warn_in_words

    exit_on_sigterm()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            closed = ClosedOutput() if name == "stdout" else Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, closed)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal or a log without UTF-8 gets question marks
    warn_in_words()
    app()


for _command in _ORDER:  # each file adds its command to the app
    import_module(f"{__name__}.{_command}")
for _group in (app, *(group.typer_instance for group in app.registered_groups)):
    for _info in _group.registered_commands if _group else ():
        _info.cls = _Command
        _info.callback = with_quiet(with_options(_info.callback)) if _info.callback else None
