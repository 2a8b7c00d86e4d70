"""``greenadapt finetune``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, Preset, examples, option
from greenadapt.config import (
    CHOSEN_FOR_ENTITIES,
    CHOSEN_FOR_TRAINING,
    PALS_PAPER,
    PAPER,
    AdapterConfig,
    MemoryConfig,
    NumberOfSeeds,
    Panel,
    SamplingConfig,
    SessionOptions,
    TaskConfig,
    TrainConfig,
)
from greenadapt.errors import UsageError
from greenadapt.fields import check_value, parameters_of

_SESSION = ("workspace", "max_time", "max_tokens", "cluster", "gpus_each")
_OF_MANY_TASKS = parameters_of(AdapterConfig, SamplingConfig)
_OF_ONE_TASK = (
    *("task", "train", "dev", "test", *parameters_of(TaskConfig)),
    *("save_logits", "compare", "reference"),
)


Dev = Annotated[str | None, option("--dev", "Labelled file to evaluate on after every epoch.", Panel.DATA)]
Test = Annotated[str | None, option("--test", "Labelled file to evaluate on at the end.", Panel.DATA)]
SaveLogits = Annotated[bool, option("--save-logits", "Save the logits of the test set.", Panel.DATA)]
PresetOption = Annotated[
    Preset | None,
    option(
        "--preset",
        f"paper: {PAPER['epochs']} epochs, learning rate {PAPER['learning_rate']}; with --tasks "
        f"{PALS_PAPER['epochs']} and {PALS_PAPER['learning_rate']}.",
        Panel.TRAINING,
    ),
]
Seeds = Annotated[int, option("--seeds", "Number of models to train, each with its seed.", Panel.TRAINING)]
FirstSeed = Annotated[int, option("--seed", "The first of the seeds.", Panel.TRAINING)]
TasksFile = Annotated[
    Path | None,
    option("--tasks", "File (.toml) of tasks that share one encoder, instead of --task and --train.", Panel.ADAPTERS),
]
OutFolder = Annotated[
    Path | None, option("--out -o", "Folder of the fine-tuned model [default: runs/TASK-MODEL-DATA-KEY].", Panel.OUTPUT)
]
Compare = Annotated[
    str | None,
    option("--compare", "Train this model (the base model) the same way and print the difference.", Panel.DATA),
]
Reference = Annotated[
    str | None,
    option(
        "--reference",
        "Also train this third model, and print the share of the gap to it that is closed.",
        Panel.DATA,
    ),
]


@app.command(
    epilog=examples(
        "finetune --task ner -m adapted --train train.tsv --test test.tsv --compare minilm -o runs/ner",
        "finetune --task qa -m minilm --train squad.json --preset paper",
        "finetune --tasks tasks.toml -m minilm --adapter pals -o runs/shared",
    )
)
def finetune(
    ctx: typer.Context,
    *,
    train: o.TrainFile = None,
    task: Annotated[TaskConfig | None, Pick(task=None, **dict.fromkeys(CHOSEN_FOR_ENTITIES))],
    corpus: o.AdaptedTo = None,
    model: o.Trained = None,
    dev: Dev = None,
    test: Test = None,
    save_logits: SaveLogits = False,
    preset: PresetOption = None,
    training: Annotated[TrainConfig, Pick(**dict.fromkeys({"pool", *CHOSEN_FOR_TRAINING}))],
    seeds: Seeds = 1,
    seed: FirstSeed = 0,
    tasks: TasksFile = None,
    adapter: AdapterConfig,
    sampling: SamplingConfig,
    memory: o.Memory = None,
    memory_config: MemoryConfig,
    compare: Compare = None,
    reference: Reference = None,
    options: Annotated[SessionOptions, Pick(*_SESSION)],
    out: OutFolder = None,
    as_json: o.AsJson = False,
) -> None:
    """Train a model for a task, and evaluate it.

    The task is NER, classification or question answering, and the model reads a mixture of both tokenizations. With
    --tasks, many tasks share one encoder and are trained at once.
    """
    from greenadapt.checkpoints.layout import SCORES, read_described
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.printing import describe, print_comparison, print_interval, print_results, print_scores
    from greenadapt.stages.finetune import compare as stage
    from greenadapt.stages.finetune.request import make_request
    from greenadapt.stages.session import find_adapted
    from greenadapt.workers import launched_processes

    if tasks is None and reference is not None and compare is None:
        raise UsageError("--reference needs --compare", "name the base model with --compare")
    check_value("--seeds", seeds, NumberOfSeeds)
    if tasks is not None:
        why = "is for one task, but the file of --tasks describes each task: leave it out"
        option_checks.refuse(ctx, _OF_ONE_TASK, why)
    else:
        why = "is for tasks that share an encoder: use it with --tasks, or leave it out"
        option_checks.refuse(ctx, _OF_MANY_TASKS, why)
    trained = tasks or task
    if trained is None:
        raise UsageError("no task", "give --task ner, classification or qa, or --tasks FILE for many tasks")
    session = o.make_session(options, out=out)
    request = make_request(
        find_adapted(session, corpus, model),
        trained,
        preset,
        option_checks.explicit_parameters(ctx),
        train=tuple(train or ()),
        dev=dev,
        test=test,
        save_logits=save_logits,
        training=training,
        adapter=adapter,
        sampling=sampling,
        max_tokens=options.max_tokens,
        memory=memory,
        memory_config=memory_config,
        seeds=tuple(range(seed, seed + seeds)),
    )
    # What is set for all commands, and excluded here, has no effect.
    compared_models = [] if tasks is not None else [name for name in (compare, reference) if name is not None]
    comparison = stage.compare(session, request, compared_models)
    if launched_processes()[0] > 0:
        return  # the first process prints
    result, rows = comparison.results[0], comparison.rows
    scores = read_described(result.folder / SCORES)
    if as_json:
        print_json({**describe(result), "scores": scores, **({"comparison": rows} if request.is_plain else {})})
        return
    print_scores(scores)
    if rows:
        print_interval(scores["main"], rows[0]["score"], rows[0]["interval"], rows[0], len(request.seeds))
    if len(rows) > 1:
        print_comparison(rows)
        if training.max_steps is not None:
            session.progress.note("few steps can show a gain that longer training does not: see --max-steps")
    print_results(comparison.results, as_json=False)
