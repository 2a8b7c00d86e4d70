"""``greenadapt search``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.cli.options.generated import examples
from greenadapt.config import SearchBy

Folder = Annotated[Path, typer.Argument(help="What index wrote.", metavar="INDEX")]
Query = Annotated[str, typer.Argument(help="A question, or words.")]
Top = Annotated[int, typer.Option("--top", help="Number of paragraphs.")]
By = Annotated[
    SearchBy,
    typer.Option("--by", help="Find paragraphs by their words, by vectors (of an index with --vectors), or by both."),
]


@app.command(epilog=examples('search papers.index "incubation period"', 'search papers.index "incubation" --by hybrid'))
def search(
    *,
    folder: Folder,
    query: Query,
    top: Top = 10,
    by: By = "bm25",
    as_json: o.AsJson = False,
) -> None:
    """Show the paragraphs of an index that match a query best."""
    from greenadapt.cli.output.console import make_progress, print_json, print_lines
    from greenadapt.cli.output.messages import harmless
    from greenadapt.inference.search.index import Index

    index = Index(folder)
    index.warn_unfinished(make_progress())
    for number, found in enumerate(index.search(query, top, by), start=1):
        if as_json:
            print_json(found.as_dict())
            continue
        where = f"characters {found.start:,} to {found.end:,}, score {found.score:.4g}"
        title = [found.title] if found.title else []
        lines = [f"{number}. {found.document}, {where}", *title, " ".join(found.text.split()), ""]
        print_lines(map(harmless, lines))
