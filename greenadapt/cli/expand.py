"""``greenadapt expand``."""

from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import AsArgument, Pick, examples
from greenadapt.cli.settings import ignore_settings
from greenadapt.config import ExpandConfig, SessionOptions


@app.command(epilog=examples("expand -c pydocs -m minilm -o adapted", "expand -c pydocs --rows norm -o norm"))
def expand(
    ctx: typer.Context,
    *,
    corpus: Annotated[o.CorpusOfResults, AsArgument()] = None,
    model: o.Model = None,
    alignment: o.AlignmentPath = None,
    config: ExpandConfig,
    options: Annotated[SessionOptions, Pick("workspace", "out")],
    as_json: o.AsJson = False,
) -> None:
    """Add an embedding row for each new word.

    Writes a model folder that plain transformers loads.
    """
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import expand as stage

    if alignment is not None:
        corpus, model = ignore_settings(ctx, "corpus", "model")
    session = o.make_session(options)
    print_results([stage.expand(session, corpus, model, config, alignment)], as_json)
