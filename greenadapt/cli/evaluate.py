"""``greenadapt evaluate``."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import ReadingOptions, TaskConfig

if TYPE_CHECKING:
    from greenadapt.stages.evaluate import Evaluated

Model = Annotated[
    str, option("--model -m", "A folder that finetune wrote, or a question answering model from elsewhere.")
]
Test = Annotated[
    list[str], option("--test", "Labelled file, or data set of the hub; repeatable, each is scored separately.")
]
TaskName = Annotated[str | None, option("--task", "Which task of a multitask model.")]
Seed = Annotated[int | None, option("--seed", "Which of the folder's seeds to score [default: all].")]
PredictionsFile = Annotated[
    Path | None,
    option(
        "--predictions",
        "Write the predictions to this file as JSON lines, in the order of the examples; compressed if it "
        "ends in .gz, .bz2, .xz or .zst.",
    ),
]


@app.command(
    epilog=examples("evaluate -m runs/ner --test test.tsv", "evaluate -m runs/ner --test a.tsv --test b.tsv --json")
)
def evaluate(
    *,
    model: Model,
    test: Test,
    task: TaskName = None,
    seed: Seed = None,
    files: Annotated[TaskConfig, Pick("columns")],
    options: Annotated[ReadingOptions, Pick(without=("seed", "max_length"))],
    predictions: PredictionsFile = None,
    as_json: o.AsJson = False,
) -> None:
    """Score fine-tuned models on labelled files.

    Scores are by seed and tokenization, as finetune scores its --test. The main score has a 95 % interval from
    resampling examples and, if there are several, seeds. Nothing is saved. With --json one object per file.
    """
    from greenadapt.cli.output.console import make_progress, print_json
    from greenadapt.cli.output.printing import print_evaluated
    from greenadapt.stages.evaluate import evaluate as score
    from greenadapt.store.outputs import check_file

    if predictions is not None:
        check_file(predictions)
    evaluated = score(model, test, task, replace(options, seed=seed), files.columns, make_progress())
    if predictions is not None:
        _write_predictions(evaluated, predictions)
    for entry in evaluated:
        if as_json:
            print_json(entry.scores)
        else:
            print_evaluated(entry.scores)


def _write_predictions(evaluated: "Sequence[Evaluated]", out: Path) -> None:
    from greenadapt.store.outputs import open_output

    with open_output(out) as (stream, _):
        for entry in evaluated:
            for seed, evaluation in entry.evaluations.items():
                rows = (
                    {"file": entry.scores["file"], "seed": seed, **prediction} for prediction in evaluation.predictions
                )
                stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
