"""``greenadapt tasks``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import basic, examples

Folder = Annotated[Path, typer.Argument(help="A folder of tasks that share an encoder, written by finetune --tasks.")]
Remove = Annotated[str | None, basic("--remove", "Remove this task for good.", metavar="NAME")]


@app.command(epilog=examples("tasks runs/shared", "tasks runs/shared --remove cola"))
def tasks(folder: Folder, remove: Remove = None, as_json: o.AsJson = False) -> None:
    """List or remove the tasks of a shared encoder."""
    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.cli.output.printing import print_tables
    from greenadapt.report.tables import listed_table
    from greenadapt.stages.finetune.tasks import list_tasks, remove_task

    if remove is not None:
        remove_task(folder, remove)
        if not as_json:
            print_lines([f"removed {remove}"])
    rows = list_tasks(folder)
    if as_json:
        print_json({"folder": str(folder), "tasks": rows})
        return
    print_tables([listed_table(rows)])
