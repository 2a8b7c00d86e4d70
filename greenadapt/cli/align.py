"""``greenadapt align``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.config import AlignConfig as Default

Vectors = Annotated[
    Path | None,
    typer.Option(
        "--vectors", help="Word vectors by path: .bin, .vec, .txt (.gz), or a w2v result.", show_default=False
    ),
]


@app.command()
def align(
    corpus: o.CorpusOfResults = None,
    model: o.Model = None,
    vectors: Vectors = None,
    method: o.Method = Default.method,
    ridge: o.Ridge = Default.ridge,
    random_scale: o.RandomScale = Default.random_scale,
    seed: o.Seed = Default.seed,
    workspace: o.WorkspaceFolder = None,
    out: o.Out = None,
    variant: o.Variant = None,
    force: o.Force = False,
    as_json: o.AsJson = False,
) -> None:
    """Fit the map from word vectors into the model's wordpiece space, and measure it on held-out words."""
    from greenadapt.cli.options.session import make_session
    from greenadapt.cli.output.results import print_results
    from greenadapt.stages import align as stage

    session = make_session(workspace, out=out, variant=variant, force=force)
    config = Default(method=method, ridge=ridge, random_scale=random_scale, seed=seed)
    print_results([stage.align(session, corpus, model, config, vectors)], as_json)
