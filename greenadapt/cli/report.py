"""``greenadapt report``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import SessionOptions

Folders = Annotated[
    list[Path] | None, typer.Argument(help="Folders of results; the page also covers what they were made from.")
]
OutFile = Annotated[
    Path | None,
    option("--out -o", "A new file for the page [default: report-CORPUS-MODEL.html or report-FOLDER.html here]."),
]


@app.command(epilog=examples("report -c pydocs", "report runs/ner runs/ner-minilm --out ner.html"))
def report(
    ctx: typer.Context,
    *,
    folders: Folders = None,
    corpus: o.CorpusOfResults = None,
    model: o.Model = None,
    out: OutFile = None,
    options: Annotated[SessionOptions, Pick("workspace")],
    as_json: o.AsJson = False,
) -> None:
    """Write one HTML page about results.

    It has scores against the base model, how good the new rows are, a map of words, and costs. The page opens without
    network. Give the folders of fine-tuned models to compare them.
    """
    option_checks.refuse_beside_folders(ctx, folders)

    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.stages.report import report as stage

    result = stage(o.make_session(options), folders or [], (corpus, model), out)
    if as_json:
        print_json(result)
        return
    print_lines([result["page"]])
