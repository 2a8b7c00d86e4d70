"""``greenadapt interpolate``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.cli.options.generated import examples

Domain = Annotated[
    str,
    typer.Option("--model", "-m", help="The domain model: a folder, such as one written by pretrain or expand."),
]
General = Annotated[str, typer.Option("--with", help="The general model: a folder, a hub id, minilm or mpnet.")]
Weight = Annotated[float, typer.Option("--weight", help="Share of the general model, from 0 to 1.")]
OutFolder = Annotated[Path, typer.Option("--out", "-o", help="Folder of the new model.")]


@app.command(epilog=examples("interpolate -m adapted --with minilm --weight 0.5 -o between"))
def interpolate(
    model: Domain,
    general: General,
    weight: Weight,
    out: OutFolder,
    force: o.Force = False,
    as_json: o.AsJson = False,
) -> None:
    """Interpolate the weights of a domain model and a general one, and write the result as a model."""
    from greenadapt.cli.options.session import make_session
    from greenadapt.cli.output.results import print_results
    from greenadapt.stages.interpolate import InterpolateRequest
    from greenadapt.stages.interpolate import interpolate as interpolate_models

    request = InterpolateRequest(model, general, weight)
    print_results([interpolate_models(make_session(None, out=out, force=force), request)], as_json)
