"""``greenadapt tasks``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import examples

Folder = Annotated[Path, typer.Argument(help="A folder of tasks that share an encoder, written by finetune --tasks.")]


@app.command(epilog=examples("tasks runs/shared"))
def tasks(folder: Folder, as_json: o.AsJson = False) -> None:
    """List the tasks of a shared encoder."""
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.printing import print_tables
    from greenadapt.report.tables import tasks_table
    from greenadapt.stages.finetune.tasks import list_tasks

    rows = list_tasks(folder)
    if as_json:
        print_json({"folder": str(folder), "tasks": rows})
        return
    print_tables([tasks_table(rows)])
