"""``greenadapt cost``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import SessionOptions

Folders = Annotated[
    list[Path] | None,
    typer.Argument(help="Folders of results, such as --out wrote; what these were made from counts, too."),
]


@app.command(epilog=examples("cost", "cost -c pydocs --json", "cost runs/ner"))
def cost(
    ctx: typer.Context,
    *,
    folders: Folders = None,
    corpus: o.OnlyCorpus = None,
    model: o.OnlyModel = None,
    options: Annotated[SessionOptions, Pick("workspace")],
    as_json: o.AsJson = False,
) -> None:
    """Show each stage's time, energy, CO2 and money.

    The results are those in the workspace or, if folders are given, those and everything they were made from.
    """
    option_checks.refuse_beside_folders(ctx, folders)

    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.cli.output.printing import print_costs
    from greenadapt.stages.status import list_costs

    session = o.make_session(options)
    rows = list_costs(session, corpus, model, folders or ())
    if as_json:
        print_json(*rows)
        return
    print_costs(rows)
    if not folders:
        root = session.workspace.root
        print_lines([f"These are results in {root}; for one that --out wrote elsewhere: greenadapt cost FOLDER", ""])
