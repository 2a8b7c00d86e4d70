"""The command line: a file per command, and here the application with its error boundary."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from greenadapt.cli.boundary import exit_on_sigterm, report_errors, require_written
from greenadapt.cli.option_checks import ignore_unused, require_names
from greenadapt.cli.options import PAPER_VALUES, start_output, take_argument, with_options
from greenadapt.cli.settings import Setting, use_settings, used_settings, with_location
from greenadapt.errors import UsageError
from greenadapt.store.files import STDOUT, naming

_PANELS = {
    "Adapt a model": ["corpus", "w2v", "align", "expand", "adapt", "neighbours", "assess", "export"],
    "Train": ["pretrain", "finetune", "tasks", "evaluate"],
    "Use": ["predict", "qa", "compile", "index", "search", "serve"],
    "Look after results": ["report", "cost", "status", "clean", "doctor", "push"],
}
_PANEL_OF = {command: panel for panel, commands in _PANELS.items() for command in commands}
_UsageError: Any = typer.BadParameter.__base__
"""Click's usage error, such as for an unknown option, which typer does not export."""


@contextmanager
def _report_errors() -> Iterator[None]:
    """Turn errors that users can act on, also typer's, into a line on stderr and ``SystemExit``."""
    with report_errors():
        try:
            yield
        except _UsageError as error:
            if not error.message.strip():  # the help was printed
                raise
            command = error.ctx.command_path if error.ctx else "greenadapt"
            raise UsageError(error.format_message().rstrip("."), f"see {command} --help") from None


class _Main(TyperGroup):
    """The application: all commands inside the error boundary."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line, and check that its output was written."""
        try:
            return super().main(*arguments, **options)
        finally:
            with report_errors():
                require_written()

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the command line, which may print help."""
        with _report_errors(), naming(STDOUT):
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _report_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of their panels."""
        return sorted(super().list_commands(ctx), key=[*_PANEL_OF].index)


class _Command(TyperCommand):
    """A command that also reads options from ``--config`` and the environment, and reports wrong values in one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # to complete a command
            return super().parse_args(ctx, args)
        values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        self._refuse_empty(values)
        if "help" not in values:  # help shows the defaults
            use_settings(ctx, values, getattr(self.callback, PAPER_VALUES))
        try:
            with naming(STDOUT):  # --help prints to it
                remaining: list[str] = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            raise with_location(self._refusal(error, values, used_settings(ctx)), ctx) from None
        take_argument(ctx)
        return remaining

    def invoke(self, ctx: Any) -> Any:
        try:
            require_names(ctx)
            ignore_unused(ctx)
            start_output(ctx)
            return super().invoke(ctx)
        except UsageError as error:
            raise with_location(error, ctx) from None

    def _refuse_empty(self, values: dict[str, Any]) -> None:
        """Raise ``UsageError`` for an empty value, such as of an unset variable, which as a path is the current
        folder.
        """
        for parameter in self.params:
            value = values.get(parameter.name)
            if value == "" or (isinstance(value, list | tuple) and "" in value):
                name = parameter.opts[0]
                label = name if name.startswith("-") else parameter.metavar or name.upper()
                raise UsageError(f"{label} is empty", "give it a value, or leave it out (is a variable not set?)")

    @staticmethod
    def _refusal(error: typer.BadParameter, values: dict[str, Any], settings: dict[str, Setting]) -> UsageError:
        """The error for a wrong value, with what is allowed."""
        name = getattr(error.param, "name", None) or ""
        value = values.get(name) if name not in settings else settings[name].value
        if value is None or error.param is None:
            return UsageError(error.format_message())
        option, reason = error.param.opts[0], str(error).removeprefix("Value error, ").rstrip(".")
        if reason.startswith(repr(value)):
            return UsageError(f"{option} {reason}")
        return UsageError(f"{option} is {value!r}: {reason.replace('Input should be', 'must be')}")


app = typer.Typer(
    cls=_Main,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Adapt a pretrained language model to your domain in a few minutes on a CPU.",
)


def _version(value: bool) -> None:
    if value:
        from greenadapt.version import __version__

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
    from greenadapt.workers import shorten_spinning

    shorten_spinning()
    exit_on_sigterm()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the parent process closed it
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # question marks on a terminal without UTF-8
    warn_in_words()
    app()


for _command in _PANEL_OF:  # each file adds its command to the app
    import_module(f"{__name__}.{_command}")
for _below in app.registered_groups:
    _below.rich_help_panel = _PANEL_OF[str(_below.name)]
for _info in app.registered_commands:
    _info.rich_help_panel = _PANEL_OF[_info.callback.__name__]  # type: ignore[union-attr]
for _group in (app, *(group.typer_instance for group in app.registered_groups)):
    for _info in _group.registered_commands if _group else ():
        _info.cls = _Command
        _info.callback = with_options(_info.callback) if _info.callback else None
