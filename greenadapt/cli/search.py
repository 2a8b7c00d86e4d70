"""``greenadapt search``."""

from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import examples
from greenadapt.config import SearchBy
from greenadapt.errors import UsageError
from greenadapt.fields import BASIC

Folder = Annotated[str | None, typer.Argument(help="The folder that index wrote; not with --search.", metavar="INDEX")]
Query = Annotated[str | None, typer.Argument(help="A question, or words.", metavar="QUERY")]
Top = Annotated[int, typer.Option("--top", help="Number of paragraphs."), BASIC]
By = Annotated[
    SearchBy,
    typer.Option("--by", help="Find paragraphs by their words, by vectors (of an index with --vectors), or by both."),
    BASIC,
]

Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="With --by dense or hybrid: the model that made the vectors, if it is not where it was."
    ),
    BASIC,
]


@app.command(
    epilog=examples(
        'search papers.index "incubation period"',
        'search papers.index "incubation" --by hybrid',
        'search --search https://localhost:9200/papers "incubation period"',
    )
)
def search(
    *,
    folder: Folder = None,
    query: Query = None,
    address: o.SearchAddress = None,
    top: Top = 10,
    by: By = "bm25",
    model: Model = None,
    as_json: o.AsJson = False,
) -> None:
    """Show the paragraphs that match a query best."""
    from greenadapt.cli.output.console import make_progress, print_json, print_lines
    from greenadapt.inference.search.index import Index

    if address is not None and query is None:
        folder, query = None, folder
    location = o.index_place(folder, address, "INDEX")
    if location is None or query is None:
        raise UsageError("an index or a query is missing", 'write search INDEX "QUERY", or search --search URL "QUERY"')
    if model is not None and by == "bm25":
        raise UsageError("--model makes the vector of the query, which --by bm25 does not need", "add --by dense")
    index = Index(location, model)
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
