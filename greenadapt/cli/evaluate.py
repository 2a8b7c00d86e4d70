"""``greenadapt evaluate``."""

from dataclasses import replace
from typing import Annotated

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import ReadingOptions, TaskConfig

Model = Annotated[
    str, option("--model -m", "A folder that finetune wrote, or a question answering model from elsewhere.")
]
Test = Annotated[
    list[str], option("--test", "Labelled file, or data set of the hub; repeatable, each is scored separately.")
]
TaskName = Annotated[str | None, option("--task", "Which task of a multitask model.")]
Seed = Annotated[int | None, option("--seed", "Which of the folder's seeds to score [default: all].")]


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
    as_json: o.AsJson = False,
) -> None:
    """Score fine-tuned models on labelled files.

    Scores are by seed and tokenization, as finetune scores its --test. The main score has a 95 % interval from
    resampling examples and, if there are several, seeds. Nothing is saved. With --json one object per file.
    """
    from greenadapt.cli.output.console import make_progress, print_json
    from greenadapt.cli.output.printing import print_evaluated
    from greenadapt.stages.evaluate import evaluate as score

    for scores in score(model, test, task, replace(options, seed=seed), files.columns, make_progress()):
        (print_json if as_json else print_evaluated)(scores)
