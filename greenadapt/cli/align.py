"""``greenadapt align``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import AsArgument, Pick, examples, option
from greenadapt.cli.settings import ignore_settings
from greenadapt.config import AlignConfig, SessionOptions

Vectors = Annotated[Path | None, option("--vectors", "Path of word vectors: .bin, .vec, .txt (.gz), or a w2v result.")]


@app.command(epilog=examples("align -c pydocs -m minilm", "align -m minilm --vectors vectors.bin -o aligned"))
def align(
    ctx: typer.Context,
    *,
    corpus: Annotated[o.CorpusOfResults, AsArgument()] = None,
    model: o.Model = None,
    vectors: Vectors = None,
    config: AlignConfig,
    options: Annotated[SessionOptions, Pick("workspace", "out")],
    as_json: o.AsJson = False,
) -> None:
    """Fit the map from word vectors to wordpiece vectors.

    Held-out words measure how good the map is.
    """
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import align as stage

    if vectors is not None and vectors.is_dir():
        [corpus] = ignore_settings(ctx, "corpus")
    session = o.make_session(options)
    print_results([stage.align(session, corpus, model, config, vectors)], as_json)
