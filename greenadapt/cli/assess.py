"""``greenadapt assess``."""

from typing import Annotated, Any

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import (
    CHOSEN_FOR_ENTITIES,
    CHOSEN_FOR_TRAINING,
    AssessConfig,
    Panel,
    SessionOptions,
    TaskConfig,
    TrainConfig,
)
from greenadapt.errors import UsageError
from greenadapt.fields import parameters_of

Corpus = Annotated[
    str | None, option("--corpus -c", "Assess the model in the workspace that was adapted to this corpus.")
]
Model = Annotated[
    str | None,
    option(
        "--model -m", "The adapted model's folder; with --corpus, its base model [default: the only one adapted to it]."
    ),
]
Base = Annotated[
    str | None, option("--base", "Compare with this model [default: the one that was adapted].", Panel.DATA)
]
_NO_DEV = ("pool", "keep", "patience")
_SPREAD = ("cluster", "gpus_each")
_OF_LABELS = (
    *parameters_of(TaskConfig, TrainConfig),
    *("preset", "max_tokens", *_SPREAD, "folds", "seeds", "seed", "base"),
)
"""The parameters of cross-validation only."""


@app.command(
    epilog=examples("assess -m adapted", "assess -c pydocs --json", "assess -m adapted --task ner --train train.tsv")
)
def assess(
    ctx: typer.Context,
    *,
    corpus: Corpus = None,
    model: Model = None,
    train: o.TrainFile = None,
    task: Annotated[TaskConfig | None, Pick(task=None, **dict.fromkeys(CHOSEN_FOR_ENTITIES))],
    base: Base = None,
    preset: o.PresetOption = None,
    training: Annotated[TrainConfig, Pick(without=_NO_DEV, **dict.fromkeys(CHOSEN_FOR_TRAINING - {*_NO_DEV}))],
    config: AssessConfig,
    options: Annotated[SessionOptions, Pick("workspace", *_SPREAD, "max_tokens")],
    as_json: o.AsJson = False,
) -> None:
    """Measure whether an adapted model helps.

    With --train, by cross-validation on your task: the adapted model and its base are fine-tuned alike on all folds of
    the labelled examples but one, and predict that one. Finished folds are kept in the workspace.

    Without --train, each recipe predicts the rows of held-out words as if these were new. A predicted row is compared
    with the model's own by cosine, and by whether that is among the ten nearest.
    """
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.printing import print_folds, print_rows
    from greenadapt.stages.session import find_adapted

    explicit = option_checks.explicit_parameters(ctx)
    session = o.make_session(options)
    assessment: dict[str, Any]
    if not train:
        option_checks.refuse(ctx, _OF_LABELS, "is for cross-validation on labelled examples: add --train FILE")
        from greenadapt.stages.assess import assess_rows

        assessment = assess_rows(find_adapted(session, corpus, model))
    else:
        if task is None:
            raise UsageError("no task", "give --task ner, classification or qa")
        from greenadapt.stages.finetune.cross_validation import cross_validate
        from greenadapt.stages.finetune.request import make_request

        start = find_adapted(session, corpus, model)
        seeds = tuple(range(config.seed, config.seed + config.seeds))
        request = make_request(
            start,
            task,
            preset,
            explicit,
            train=tuple(train),
            training=training,
            max_tokens=options.max_tokens,
            seeds=seeds,
        )
        assessment = cross_validate(session, request, base, config)
    if as_json:
        print_json(assessment)
    elif train:
        print_folds(assessment)
    else:
        print_rows(assessment)
