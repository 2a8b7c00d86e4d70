"""``greenadapt w2v``."""

from dataclasses import replace

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import examples
from greenadapt.config import SessionOptions, TextOptions, W2VConfig


@app.command(epilog=examples("w2v -c pydocs -m minilm", "w2v abstracts.txt -m minilm --epochs 10 --min-count 3"))
def w2v(
    ctx: typer.Context,
    *,
    corpus: o.Corpus = None,
    model: o.Model = None,
    config: W2VConfig,
    text: TextOptions,
    options: SessionOptions,
    as_json: o.AsJson = False,
) -> None:
    """Train CBOW word vectors on a corpus.

    The model's tokenizer splits the corpus into words.
    """
    from greenadapt.cli.output.printing import print_results
    from greenadapt.stages import w2v as stage

    option_checks.refuse_field(ctx, [corpus], text.format)
    session = o.make_session(options)
    config = replace(config, workers=session.workers)
    print_results([stage.w2v(session, corpus, model, config, text, option_checks.named(ctx, W2VConfig))], as_json)
