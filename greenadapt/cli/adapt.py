"""``greenadapt adapt``."""

from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import CHOSEN_FOR_VECTORS, AlignConfig, ExpandConfig, SessionOptions, TextOptions, W2VConfig


@app.command(epilog=examples("adapt -c pydocs -m minilm", "adapt abstracts.txt -m minilm --max-words 20000 -o adapted"))
def adapt(
    ctx: typer.Context,
    *,
    corpus: o.Corpus = None,
    model: o.Model = None,
    w2v: Annotated[W2VConfig, Pick(**dict.fromkeys(CHOSEN_FOR_VECTORS))],
    align: AlignConfig,
    expand: Annotated[ExpandConfig, Pick(without=("min_count",))],
    text: TextOptions,
    options: Annotated[SessionOptions, Pick(without=("max_tokens",))],
    as_json: o.AsJson = False,
) -> None:
    """Adapt a model to a corpus in one go.

    Runs corpus prepare, w2v, align and expand: from raw text to an adapted model folder.
    """
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import adapt as stage

    option_checks.refuse_field(ctx, [corpus], text.format)
    results = stage.adapt(o.make_session(options), corpus, model, text, w2v, align, expand)
    print_results(results, as_json)
