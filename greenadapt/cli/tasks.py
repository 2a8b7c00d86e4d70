"""``greenadapt tasks``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o

Folder = Annotated[
    Path,
    typer.Argument(help="A folder of tasks that share an encoder, as finetune --tasks writes.", show_default=False),
]
Remove = Annotated[
    str | None, typer.Option("--remove", help="Take this task out, for good.", show_default=False, metavar="NAME")
]


@app.command()
def tasks(folder: Folder, remove: Remove = None, as_json: o.AsJson = False) -> None:
    """List the tasks that share an encoder, or take one of them away."""
    from dataclasses import asdict

    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.stages.finetune.task_list import list_tasks, remove_task

    if remove is not None:
        remove_task(folder, remove)
        if not as_json:
            print_lines([f"{remove} is removed"])
    listed = [asdict(one) for one in list_tasks(folder)]
    if as_json:
        print_json({"folder": str(folder), "tasks": listed})
        return
    _print_tasks(listed)


def _print_tasks(listed: list[dict[str, Any]]) -> None:
    from greenadapt.cli.output.console import print_table
    from greenadapt.report.tables import listed_table

    table = listed_table(listed)
    print_table(table.title, table.columns, table.rows)
