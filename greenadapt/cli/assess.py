"""``greenadapt assess``."""

from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.cli.options.generated import Pick, examples
from greenadapt.config import AssessConfig, SessionOptions

Corpus = Annotated[
    str | None,
    typer.Option("--corpus", "-c", help="Assess the model in the workspace that was adapted to this corpus."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="The adapted model's folder; with --corpus, its base model [default: the only one]."
    ),
]


@app.command(epilog=examples("assess -m adapted", "assess -c pydocs --json"))
def assess(
    *,
    corpus: Corpus = None,
    model: Model = None,
    config: AssessConfig,
    options: Annotated[SessionOptions, Pick("workspace")],
    variant: o.VariantOfResults = None,
    as_json: o.AsJson = False,
) -> None:
    """Show how well each recipe of rows predicts the rows of known words, to choose one without labels.

    A word is held out, its row is predicted as if it were new, and compared with the model's own: by its cosine, by
    whether the own row is nearest, and by how much the model's states change in texts of the corpus if the predicted
    row takes its place. Nothing is saved.
    """
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.tables import print_rows
    from greenadapt.stages.assess import assess_rows
    from greenadapt.stages.session import adapted_model

    session = o.make_session(options, variant=variant)
    found = assess_rows(session, adapted_model(session, corpus, model), config)
    if as_json:
        print_json(found)
    else:
        print_rows(found)
