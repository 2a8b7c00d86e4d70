"""``greenadapt interpolate``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import InterpolateConfig, SessionOptions

Domain = Annotated[
    str,
    typer.Option("--model", "-m", help="The domain model: a folder, such as one written by pretrain or expand."),
]
General = Annotated[str, typer.Option("--with", help="The general model: a folder, a hub id, minilm or mpnet.")]
OutFolder = Annotated[Path, typer.Option("--out", "-o", help="Folder of the new model.")]


@app.command(epilog=examples("interpolate -m adapted --with minilm --weight 0.5 -o between"))
def interpolate(
    *,
    model: Domain,
    general: General,
    config: InterpolateConfig,
    options: Annotated[SessionOptions, Pick("force", "dry_run")],
    out: OutFolder,
    as_json: o.AsJson = False,
) -> None:
    """Interpolate the weights of a domain model and a general one, and write the result as a model."""
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import interpolate as stage

    print_results([stage.interpolate(o.make_session(options, out=out), model, general, config)], as_json)
