"""``greenadapt w2v``."""

from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import CHOSEN_FOR_VECTORS, SessionOptions, TextOptions, W2VConfig


@app.command(epilog=examples("w2v -c pydocs -m minilm", "w2v abstracts.txt -m minilm --epochs 10 --min-count 3"))
def w2v(
    ctx: typer.Context,
    *,
    corpus: o.Corpus = None,
    model: o.Model = None,
    config: Annotated[W2VConfig, Pick(**dict.fromkeys(CHOSEN_FOR_VECTORS))],
    text: TextOptions,
    options: Annotated[SessionOptions, Pick(without=("max_tokens",))],
    as_json: o.AsJson = False,
) -> None:
    """Train CBOW word vectors on a corpus.

    The model's tokenizer splits the corpus into words.
    """
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import w2v as stage

    option_checks.refuse_field(ctx, [corpus], text.format)
    print_results([stage.w2v(o.make_session(options), corpus, model, config, text)], as_json)
