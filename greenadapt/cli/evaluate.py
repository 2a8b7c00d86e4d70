"""``greenadapt evaluate``."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import inference as p
from greenadapt.cli.options import shared as o
from greenadapt.cli.options.memory import MovedMemory
from greenadapt.config import RunConfig as Run
from greenadapt.config import TrainConfig as Train
from greenadapt.storage.outputs import check_file, open_output

if TYPE_CHECKING:
    from greenadapt.stages.evaluate import Evaluated

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="A folder that finetune wrote, or a question answering model from elsewhere.",
        show_default=False,
    ),
]
Test = Annotated[
    list[str],
    typer.Option(
        "--test",
        help="A labelled file, or a data set of the hub; may be repeated, each is scored by itself.",
        show_default=False,
    ),
]
TaskName = Annotated[
    str | None, typer.Option("--task", help="Which task of a model that has several.", show_default=False)
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help="Which of the folder's seeds is scored (default: every one).", show_default=False),
]
TextField = Annotated[
    list[str] | None,
    typer.Option(
        "--text-field",
        help="Classification: field or column of the text, twice for a pair (default: as in training).",
        show_default=False,
    ),
]
LabelField = Annotated[
    str | None,
    typer.Option(
        "--label-field",
        help="Classification: field or column of the label (default: as in training).",
        show_default=False,
    ),
]
PredictionsFile = Annotated[
    Path | None,
    typer.Option(
        "--predictions",
        help="Write the predictions into this file, one a line, in the order of the examples; compressed where its "
        "name says so.",
        show_default=False,
    ),
]
LogitsFile = Annotated[
    Path | None,
    typer.Option(
        "--logits",
        help="Write the logits of one file and one seed, of both tokenizations, into this .safetensors.",
        show_default=False,
    ),
]


@app.command()
def evaluate(
    model: Model,
    test: Test,
    task: TaskName = None,
    seed: Seed = None,
    text_field: TextField = None,
    label_field: LabelField = None,
    pool: p.PoolOption = None,
    precision: p.PrecisionOption = Train.precision,
    max_tokens: p.MaxTokens = Run.max_tokens,
    memory: MovedMemory = None,
    predictions: PredictionsFile = None,
    logits: LogitsFile = None,
    as_json: o.AsJson = False,
) -> None:
    """Score fine-tuned models on labelled files, as finetune scores its --test: by each seed and tokenization.

    The main score has a 95 % interval from resampling examples and, of several, seeds. Nothing is kept. With --json one
    object a file.
    """
    from greenadapt.cli.output.console import make_progress, print_json
    from greenadapt.cli.output.tables import print_evaluated
    from greenadapt.inference.opened_models import ReadingOptions
    from greenadapt.stages.evaluate import EvaluateRequest
    from greenadapt.stages.evaluate import evaluate as score

    for path in (predictions, logits):
        if path is not None:
            check_file(path)
    named = {"text_fields": tuple(text_field or ()), "label_field": label_field}
    fields = {name: value for name, value in named.items() if value}
    reading = ReadingOptions(pool, seed, precision, max_tokens, memory=memory)
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
    """Each with its file and seed."""
    with open_output(out) as (stream, _):
        for one in found:
            for seed, evaluation in one.evaluations.items():
                rows = ({"file": one.scores["file"], "seed": seed, **each} for each in evaluation.predictions)
                stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_logits(found: "Sequence[Evaluated]", out: Path) -> None:
    """As finetune --save-logits has them, of the only file and seed."""
    from greenadapt.storage.arrays import write_arrays
    from greenadapt.training.evaluation import stacked

    [one] = found
    [evaluation] = one.evaluations.values()
    write_arrays(out, stacked(evaluation.logits))
