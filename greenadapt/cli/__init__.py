"""The command line: one file a command, and here the application with its one error boundary."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from greenadapt.errors import GreenadaptError


class _Group(TyperGroup):
    """Turns what a user can cause or meet into one line on stderr and an exit code; anything else is a bug."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GreenadaptError as error:
            _fail(str(error), error.exit_code)
        except BrokenPipeError:
            # The reader of a pipeline left (head, less): not an error of ours, and nothing more to say to it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            _fail(f"{error.strerror or error}{where}", 1)
        except MemoryError:
            _fail("not enough memory: lower --max-memory, --workers or --max-vocab", 1)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"greenadapt: {' '.join(message.split())}\n")
    raise typer.Exit(code)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
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
    app()


from greenadapt.cli import adapt, align, corpus, cost, demo, expand, export, neighbours, w2v  # noqa: E402, F401
