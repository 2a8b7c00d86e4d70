"""``greenadapt index``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, basic, examples, option
from greenadapt.config import IndexConfig, SessionOptions, TextOptions

Documents = Annotated[
    list[str], option("--documents", "Documents: a folder, a file or an archive, in any corpus format; repeatable.")
]
Out = Annotated[Path, basic("--out -o", "Folder of the index.")]
Model = Annotated[
    str | None,
    basic(
        "--model -m",
        "An encoder, adapted or not, whose tokenizer splits text into words, as languages without spaces need "
        "[default: words are runs of letters and digits].",
    ),
]
Update = Annotated[
    bool, basic("--update", "Let --documents be others than before: those that are no longer named are removed.")
]


@app.command(
    epilog=examples(
        "index --documents papers/ --sample-by document -o papers.index",
        "index --documents papers/ -m adapted -o papers.index",
    )
)
def index(
    ctx: typer.Context,
    *,
    documents: Documents,
    out: Out,
    model: Model = None,
    config: IndexConfig,
    update: Update = False,
    read: Annotated[TextOptions, Pick("format", "fields", "sample_by")],
    options: Annotated[SessionOptions, Pick("force")],
    as_json: o.AsJson = False,
) -> None:
    """Index the paragraphs of documents for search and qa.

    The same command again brings the index up to date. Work is committed in batches: searches see it meanwhile, and a
    killed run resumes after the last one.
    """
    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.cli.output.printing import counts_in_words
    from greenadapt.stages import index as stage

    option_checks.refuse_field(ctx, documents, read.format)
    fields = read.fields or stage.IndexRequest.fields
    request = stage.IndexRequest(tuple(documents), model, config, read.format, fields, read.sample_by, update)
    row = stage.index(o.make_session(options, out=out), request)
    if as_json:
        print_json(row)
        return
    status = f"done in {row['seconds']:.1f} s" if row["status"] == "done" else row["status"]
    print_lines([f"index: {status}; {counts_in_words(row['counts'])}", f"  {row['folder']}"])
