"""``greenadapt evaluate``."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import ReadingOptions
from greenadapt.fields import BASIC

if TYPE_CHECKING:
    from greenadapt.stages.evaluate import Evaluated

Model = Annotated[
    str,
    typer.Option("--model", "-m", help="A folder that finetune wrote, or a question answering model from elsewhere."),
]
Test = Annotated[
    list[str],
    typer.Option("--test", help="Labelled file, or data set of the hub; repeatable, each is scored separately."),
]
TaskName = Annotated[str | None, typer.Option("--task", help="Which task of a multitask model."), BASIC]
Seed = Annotated[int | None, typer.Option("--seed", help="Which of the folder's seeds to score [default: all].")]
TextField = Annotated[
    list[str] | None,
    typer.Option(
        "--text-field",
        help="Classification: field or column of the text; twice for a pair [default: as in training].",
    ),
    BASIC,
]
LabelField = Annotated[
    str | None,
    typer.Option("--label-field", help="Classification: field or column of the label [default: as in training]."),
    BASIC,
]
PredictionsFile = Annotated[
    Path | None,
    typer.Option(
        "--predictions",
        help="Write the predictions to this file as JSON lines, in the order of the examples; compressed if it "
        "ends in .gz, .bz2, .xz or .zst.",
    ),
    BASIC,
]
LogitsFile = Annotated[
    Path | None,
    typer.Option("--logits", help="Write both tokenizations' logits of one file and seed to this .safetensors file."),
]


@app.command(
    epilog=examples(
        "evaluate -m runs/ner --test test.tsv",
        "evaluate -m runs/ner --test a.tsv --test b.tsv --json",
    )
)
def evaluate(
    *,
    model: Model,
    test: Test,
    task: TaskName = None,
    seed: Seed = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    options: Annotated[ReadingOptions, Pick(without=("seed", "max_length"))],
    predictions: PredictionsFile = None,
    logits: LogitsFile = None,
    as_json: o.AsJson = False,
) -> None:
    """Score fine-tuned models on labelled files.

    Scores are by seed and tokenization, as finetune scores its --test. The main score has a 95 % interval from
    resampling examples and, if there are several, seeds. Nothing is saved. With --json one object per file.
    """
    from greenadapt.cli.output.console import make_progress, print_json
    from greenadapt.cli.output.printing import print_evaluated
    from greenadapt.stages.evaluate import EvaluateRequest
    from greenadapt.stages.evaluate import evaluate as score
    from greenadapt.storage.outputs import check_files

    check_files(predictions, logits)
    named = {"text_fields": tuple(text_field or ()), "label_field": label_field}
    fields = {name: value for name, value in named.items() if value}
    reading = replace(options, seed=seed)
    request = EvaluateRequest(model, tuple(test), task, reading, fields, keep_logits=logits is not None)
    found = score(request, make_progress())
    if predictions is not None:
        _write_predictions(found, predictions)
    if logits is not None:
        _write_logits(found, logits)
    for one in found:
        if as_json:
            print_json(one.scores)
        else:
            print_evaluated(one.scores)


def _write_predictions(found: "Sequence[Evaluated]", out: Path) -> None:
    """Write each with its file and seed."""
    from greenadapt.storage.outputs import open_output

    with open_output(out) as (stream, _):
        for one in found:
            for seed, evaluation in one.evaluations.items():
                rows = ({"file": one.scores["file"], "seed": seed, **each} for each in evaluation.predictions)
                stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_logits(found: "Sequence[Evaluated]", out: Path) -> None:
    """Of the only file and seed, as finetune --save-logits writes them."""
    from greenadapt.storage.arrays import write_arrays
    from greenadapt.storage.outputs import replacing
    from greenadapt.training.evaluation import stacked

    [one] = found
    [evaluation] = one.evaluations.values()
    with replacing(out) as part:
        write_arrays(part, stacked(evaluation.logits))
