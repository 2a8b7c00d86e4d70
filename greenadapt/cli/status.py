"""``greenadapt status``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import SessionOptions

Folders = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Folders of results, such as --out wrote, or of several, such as runs, instead of the workspace."
    ),
]
Verify = Annotated[
    bool, option("--verify", "Compare the content of all files with their checksums, which reads them all.")
]


@app.command(epilog=examples("status", "status -c pydocs --verify", "status runs --json"))
def status(
    ctx: typer.Context,
    *,
    folders: Folders = None,
    corpus: o.OnlyCorpus = None,
    model: o.OnlyModel = None,
    verify: Verify = False,
    options: Annotated[SessionOptions, Pick("workspace")],
    as_json: o.AsJson = False,
) -> None:
    """Show results, unfinished ones, and what clean would remove.

    A result is damaged if a file is missing or has another size. A result that is being made is shown with its process.
    To see whether a text has changed since, run the command that read it again.
    """
    option_checks.refuse_beside_folders(ctx, folders)

    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.printing import print_status
    from greenadapt.stages import status as stage

    session = o.make_session(options)
    rows = stage.status(session, corpus, model, folders or (), verify=verify)
    if as_json:
        print_json(*rows)
    else:
        print_status(rows, None if folders else session.workspace.root)
