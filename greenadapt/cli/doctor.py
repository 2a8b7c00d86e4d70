"""``greenadapt doctor``."""

from dataclasses import asdict
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import SessionOptions


@app.command(epilog=examples("doctor", "doctor --json"))
def doctor(*, options: Annotated[SessionOptions, Pick("workspace")], as_json: o.AsJson = False) -> None:
    """Check this machine, and say what to do.

    Checks versions, missing extras, GPU, cores, and where the workspace is and how much disk is free there. The exit
    code is 1 only if something fails that every command needs.
    """
    from greenadapt.cli.output.console import print_json, print_lines
    from greenadapt.stages.doctor import doctor as checks
    from greenadapt.store.workspace import Workspace

    is_fit = True
    for result in checks(Workspace.find(options.workspace)):
        is_fit = is_fit and result.state != "problem"
        if as_json:
            print_json(asdict(result))
            continue
        text = ": ".join(filter(None, (result.check, result.found, result.advice)))
        print_lines([f"{result.state:<7}  {text}"])
    if not is_fit:
        raise typer.Exit(1)
