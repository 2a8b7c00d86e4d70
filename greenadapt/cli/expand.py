"""``greenadapt expand``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.config import ExpandConfig as Default

Alignment = Annotated[
    Path | None, typer.Option("--alignment", help="An align result by path, instead of by corpus.", show_default=False)
]


@app.command()
def expand(
    corpus: o.CorpusOfResults = None,
    model: o.Model = None,
    alignment: Alignment = None,
    rows: o.Rows = Default.rows,
    blend: o.Blend = Default.blend,
    oov: o.Oov = Default.oov,
    replace_all: o.ReplaceAll = Default.replace_all,
    max_words: o.MaxWords = Default.max_words,
    min_count: o.MinWordCount = Default.min_count,
    min_pieces: o.MinPieces = Default.min_pieces,
    restrict_to: o.RestrictTo = None,
    dtype: o.Dtype = Default.dtype,
    workspace: o.WorkspaceFolder = None,
    out: o.Out = None,
    variant: o.Variant = None,
    force: o.Force = False,
    as_json: o.AsJson = False,
) -> None:
    """Add the mapped vectors as new embedding rows, and write a model folder that plain transformers loads."""
    from greenadapt.cli.options.session import make_session
    from greenadapt.cli.output.results import print_results
    from greenadapt.stages import expand as stage

    session = make_session(workspace, out=out, variant=variant, force=force)
    config = Default(
        rows=rows,
        blend=blend,
        oov=oov,
        replace_all=replace_all,
        max_words=max_words,
        min_count=min_count,
        min_pieces=min_pieces,
        restrict_to=tuple(map(str, restrict_to or ())),
        dtype=dtype,
    )
    print_results([stage.expand(session, corpus, model, config, alignment)], as_json)
