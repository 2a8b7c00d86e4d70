"""The command line: one file a command, and here the application with its one error boundary."""

import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from greenadapt.errors import GreenadaptError

_ORDER = [
    "adapt",
    "corpus",
    "w2v",
    "align",
    "expand",
    "interpolate",
    "neighbours",
    "export",
    "pretrain",
    "params",
    "finetune",
    "tasks",
    "evaluate",
    "predict",
    "qa",
    "cost",
    "demo",
]


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
        except KeyboardInterrupt:
            _fail("interrupted: the same command goes on from finished stages and from what is under --out", 130)

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in the order of the work."""
        return sorted(super().list_commands(ctx), key=_ORDER.index)


def _fail(message: str, code: int) -> None:
    from greenadapt.cli.console import harmless

    sys.stderr.write(f"greenadapt: {harmless(' '.join(message.split()))}\n")
    raise typer.Exit(code)


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
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal or a log without UTF-8 gets question marks
    app()


for _command in _ORDER:  # each file adds its command to the app
    import_module(f"{__name__}.{_command}")
