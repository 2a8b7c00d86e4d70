"""Options that several commands share, and the session that they make."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenadapt import config
from greenadapt.cli.options.argument import AsArgument
from greenadapt.cli.options.command_line import GIVEN, PLAN
from greenadapt.cli.options.settings import used_settings
from greenadapt.config import Panel, SessionOptions
from greenadapt.errors import UsageError
from greenadapt.progress import limit_time

if TYPE_CHECKING:
    from greenadapt.stages.session import Session

Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="A named corpus (see greenadapt corpus list), a recipe (.toml), a text file, or - for standard input.",
    ),
    AsArgument(),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A model folder, a hub id, minilm or mpnet [default: the only one used so far].",
    ),
]
SampleBy = Annotated[
    config.SampleBy | None,
    typer.Option("--sample-by", help=f"{config.SAMPLE_BY.help[:-1]} [default: line; all of the file for --context]."),
]
CorpusOfResults = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="The corpus whose results in the workspace to use, by name or file [default: the only one].",
    ),
]
AdaptedTo = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="Train the model in the workspace that was adapted to this corpus; no text is read from it.",
    ),
]
Trained = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="The model to train: a folder, adapted or not, a hub id, minilm or mpnet; with --corpus, the base of the "
        "adapted model [default: the only one].",
    ),
]
VariantOfResults = Annotated[
    str | None,
    typer.Option("--variant", help="Use the results stored under this name, if any.", rich_help_panel=Panel.RESULTS),
]
AlignmentPath = Annotated[
    Path | None, typer.Option("--alignment", help="Path of an align result, instead of a corpus.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="A general model whose states the trained model sees: a folder, a hub id, or base for the model that "
        "--model was adapted from.",
        rich_help_panel=Panel.MEMORY,
    ),
]

SearchAddress = Annotated[
    str | None,
    typer.Option(
        "--search",
        metavar="URL",
        help="Use an index on an OpenSearch or Elasticsearch server instead, by its address; see index --search.",
        rich_help_panel=Panel.SEARCH,
    ),
]


def index_place(folder: str | None, address: str | None, name: str) -> str | None:
    """Where an index lies, if one is given: a folder, which ``name`` takes, or an address, which --search takes.

    Raises ``UsageError`` for both, and for one in place of the other.
    """
    from greenadapt.inference.search.connection import is_address

    if folder is not None and address is not None:
        raise UsageError(f"{name} and --search exclude each other", "leave out one of them")
    if folder is not None and is_address(folder):
        raise UsageError(f"{name} takes a folder, not an address", "give the address with --search")
    if address is not None and not is_address(address):
        raise UsageError("--search takes an address", "give one such as https://localhost:9200/papers")
    return folder if address is None else address


def start_output(ctx: typer.Context) -> None:
    """Print as --quiet and --verbose say from now on, with --verbose first what is set where."""
    from greenadapt.cli.output.messages import set_output, show_details, write_message

    quiet, verbose = ctx.params["quiet"], ctx.params["verbose"]
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other", "leave out one of them")
    set_output(quiet=quiet)
    if not verbose:
        return
    show_details()
    from greenadapt import __version__

    write_message("debug", f"greenadapt {__version__}: {GIVEN.get()}")
    for setting in used_settings(ctx).values():
        value = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        write_message("debug", f"set {setting.place}: {value}")


def make_session(options: SessionOptions, **own: Any) -> "Session":
    """What the stages of one command share; ``own`` are fields that this command has as options of its own."""
    from greenadapt.cli.output.console import make_progress
    from greenadapt.stages.session import Session
    from greenadapt.workers import launched_processes

    options = replace(options, **own)
    if options.nice:
        os.nice(options.nice)
    if options.max_time is not None:
        limit_time(options.max_time, is_alone=launched_processes()[1] == 1)
    return Session.of(options, make_progress(), command=GIVEN.get(), plan=PLAN.get())
