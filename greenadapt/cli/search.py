"""``greenadapt search``."""

from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import examples, option

Folder = Annotated[str, typer.Argument(help="The folder that index wrote.", metavar="INDEX")]
Query = Annotated[str, typer.Argument(help="A question, or words.", metavar="QUERY")]
Top = Annotated[int, option("--top", "Number of paragraphs.")]


@app.command(epilog=examples('search papers.index "incubation period"', 'search papers.index "incubation" --top 3'))
def search(*, folder: Folder, query: Query, top: Top = 10, as_json: o.AsJson = False) -> None:
    """Show the paragraphs that match a query best."""
    from greenadapt.cli.output.console import make_progress, print_json, print_lines
    from greenadapt.inference.search.index import Index

    index = Index(folder)
    progress = make_progress()
    passages = index.search(query, top)
    if not passages:
        progress.note("nothing found: no paragraph has a word of the query")
    for number, passage in enumerate(passages, start=1):
        if as_json:
            print_json(passage.as_dict())
            continue
        where = f"characters {passage.start:,} to {passage.end:,}, score {passage.score:.4g}"
        title = [passage.title] if passage.title else []
        lines = [f"{number}. {passage.document}, {where}", *title, " ".join(passage.text.split()), ""]
        print_lines(lines)
