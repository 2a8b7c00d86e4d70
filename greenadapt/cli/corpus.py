"""``greenadapt corpus list | prepare``."""

from typing import Annotated, Any

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import SessionOptions, TextOptions

group = typer.Typer(no_args_is_help=True, help="List named corpora, and download and prepare one.")
app.add_typer(group, name="corpus")

Name = Annotated[
    str,
    typer.Argument(metavar="CORPUS", help="A named corpus, a recipe (.toml), a text file, or - for standard input."),
]
Splitter = Annotated[
    str | None,
    option(
        "--model -m",
        "The model whose tokenizer splits the text: a folder, a hub id, minilm or mpnet [default: only download].",
    ),
]


@group.command("list", epilog=examples("corpus list", "corpus list --json"))
def list_corpora(*, options: Annotated[SessionOptions, Pick("workspace")], as_json: o.AsJson = False) -> None:
    """List the named corpora, and those in the workspace.

    With --json also where their text comes from.
    """
    from greenadapt.cli.output.console import print_json, print_table
    from greenadapt.stages import corpus

    rows = corpus.list_corpora(o.make_session(options))
    if as_json:
        print_json(*rows)
        return
    print_table(
        "",
        ["corpus", "title", "licence", "stated size", "network", "prepared for"],
        (
            [
                *(row["name"], row["title"], row["licence"], _describe_size(row["stated"]), row["network"]),
                ", ".join(row["models"]) or "-",
            ]
            for row in rows
        ),
        numbers=False,
    )


def _describe_size(stated: dict[str, Any] | None) -> str:
    from greenadapt.errors import byte_size

    if stated is None:
        return "-"
    parts = [f"{stated[name]:,} {name}" for name in ("documents", "words") if stated[name] is not None]
    parts += [byte_size(stated["bytes"])] if stated["bytes"] is not None else []
    return f"{'up to ' if stated['at_most'] else ''}{', '.join(parts)} ({stated['on']})"


@group.command(
    epilog=examples("corpus prepare pydocs -m minilm", "corpus prepare abstracts.jsonl -m minilm --field body")
)
def prepare(
    ctx: typer.Context,
    *,
    name: Name,
    model: Splitter = None,
    text: TextOptions,
    options: Annotated[SessionOptions, Pick(without=("out", "max_tokens"))],
    as_json: o.AsJson = False,
) -> None:
    """Download a corpus, and split it into words.

    A corpus from the network needs --download. Without a model it is only downloaded.
    """
    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import corpus as stage

    option_checks.refuse_field(ctx, [name], text.format)
    session = o.make_session(options)
    result = stage.prepare(session, name, model, text)
    if not isinstance(result, str):
        print_results([result], as_json)
    elif as_json:
        print_json({"stage": "corpus", "status": "fetched", "corpus": result})
    else:
        print_lines([f"{result} is downloaded; to split it into words, give a model with --model"])
