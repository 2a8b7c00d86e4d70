"""``greenadapt index``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import IndexConfig, SessionOptions, TextOptions

Documents = Annotated[
    list[str], option("--documents", "Documents: a folder, a file or an archive, in any corpus format; repeatable.")
]
Out = Annotated[Path, option("--out -o", "Folder of the index.")]
Model = Annotated[
    str | None,
    option(
        "--model -m",
        "An encoder, adapted or not, whose tokenizer splits text into words, as languages without spaces need "
        "[default: words are runs of letters and digits].",
    ),
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
    read: Annotated[TextOptions, Pick("format", "fields", "sample_by")],
    options: Annotated[SessionOptions, Pick("workspace")],
    as_json: o.AsJson = False,
) -> None:
    """Index the paragraphs of documents for search and qa.

    The same command again finds the index; for other documents, name another folder.
    """
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import index as stage

    option_checks.refuse_field(ctx, documents, read.format)
    print_results([stage.index(o.make_session(options, out=out), documents, model, config, read)], as_json)
