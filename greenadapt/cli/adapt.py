"""``greenadapt adapt``."""

from dataclasses import replace
from typing import Annotated

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.cli.options.generated import Pick, examples
from greenadapt.config import AlignConfig, ExpandConfig, SessionOptions, TextOptions, W2VConfig


@app.command(
    epilog=examples("adapt -c pydocs -m minilm", "adapt -c abstracts.txt -m minilm --max-words 20000 -o adapted")
)
def adapt(
    *,
    corpus: o.Corpus = None,
    model: o.Model = None,
    w2v: W2VConfig,
    align: AlignConfig,
    expand: Annotated[ExpandConfig, Pick(without=("min_count",))],
    text: TextOptions,
    options: SessionOptions,
    as_json: o.AsJson = False,
) -> None:
    """Run w2v, align and expand in one go: from raw text to an adapted model folder."""
    from greenadapt.cli.output.results import print_results
    from greenadapt.stages import adapt as stage

    session = o.make_session(options)
    request = stage.AdaptRequest(replace(w2v, workers=session.workers), align, expand, text)
    print_results(stage.adapt(session, corpus, model, request), as_json)
