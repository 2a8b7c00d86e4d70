"""``greenadapt search``."""

from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import basic, examples
from greenadapt.config import SearchBy
from greenadapt.errors import UsageError

Folder = Annotated[str, typer.Argument(help="The folder that index wrote.", metavar="INDEX")]
Query = Annotated[str, typer.Argument(help="A question, or words.", metavar="QUERY")]
Top = Annotated[int, basic("--top", "Number of paragraphs.")]
By = Annotated[
    SearchBy, basic("--by", "Find paragraphs by their words, by vectors (of an index with --vectors), or by both.")
]

Model = Annotated[
    str | None,
    basic("--model -m", "With --by dense or hybrid: the model that made the vectors, if it is not where it was."),
]


@app.command(epilog=examples('search papers.index "incubation period"', 'search papers.index "incubation" --by hybrid'))
def search(
    *, folder: Folder, query: Query, top: Top = 10, by: By = "bm25", model: Model = None, as_json: o.AsJson = False
) -> None:
    """Show the paragraphs that match a query best."""
    from greenadapt.cli.output.console import make_progress, print_json, print_lines
    from greenadapt.inference.search.index import Index

    if model is not None and by == "bm25":
        raise UsageError("--model makes the vector of the query, which --by bm25 does not need", "add --by dense")
    index = Index(folder, model)
    progress = make_progress()
    index.warn_unfinished(progress)
    passages = index.search(query, top, by)
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
