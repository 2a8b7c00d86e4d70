"""``greenadapt pretrain``."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import memory as m
from greenadapt.cli.options import shared as o
from greenadapt.cli.options import training as t
from greenadapt.config import GMAP_PRETRAINING, MemoryConfig, Mix
from greenadapt.config import PretrainConfig as Config
from greenadapt.config import RunConfig as Run
from greenadapt.config import TrainConfig as Train

_TEXT, _MASKING = "Text", "Masking"

Text = Annotated[
    list[str],
    typer.Option("--text", help="A text file, a folder, a named corpus, or - for standard input; may be repeated.",
                 show_default=False, rich_help_panel=_TEXT),
]  # fmt: skip
GeneralText = Annotated[
    str | None,
    typer.Option("--general-text", help="Text of no domain, on which the loss tells what is forgotten.",
                 show_default=False, rich_help_panel=_TEXT),
]  # fmt: skip
Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of --text, where its name does not say it.", show_default=False,
                 rich_help_panel=_TEXT),
]  # fmt: skip
Field = Annotated[
    list[str] | None,
    typer.Option("--field", help="Field (JSON lines) or column (CSV, TSV) that holds text; may be repeated.",
                 show_default=False, rich_help_panel=_TEXT),
]  # fmt: skip
Heldout = Annotated[
    float,
    typer.Option("--heldout", help="Share of the documents to measure on, not to train on.", rich_help_panel=_TEXT),
]
MaxLength = Annotated[
    int | None,
    typer.Option("--max-length", help="Base pieces of an input [default: 128, or what the model reads].",
                 show_default=False, rich_help_panel=_TEXT),
]  # fmt: skip
EvalInputs = Annotated[
    int, typer.Option("--eval-inputs", help="Inputs of a text that are measured on, at most.", rich_help_panel=_TEXT)
]
MaskShare = Annotated[
    float, typer.Option("--mask-share", help="Share of the pieces that are to be guessed.", rich_help_panel=_MASKING)
]
WholeWords = Annotated[
    bool, typer.Option("--whole-words", help="Guess all pieces of a word together.", rich_help_panel=_MASKING)
]
OnlyNewRows = Annotated[
    bool,
    typer.Option("--only-new-rows", help="Train the rows of added words and nothing else.", rich_help_panel=t.TRAINING),
]
HeadSteps = Annotated[
    int,
    typer.Option("--head-steps", help="Steps of the head alone, where the model has none yet.",
                 rich_help_panel=t.TRAINING),
]  # fmt: skip
HeadLearningRate = Annotated[
    float, typer.Option("--head-learning-rate", help="At its highest, in these steps.", rich_help_panel=t.TRAINING)
]
MixOption = Annotated[
    Mix,
    typer.Option("--mix", help="Which tokenization an input is read in: a coin for each input and epoch, for each "
                 "input once, for each batch; both; or always the one.", rich_help_panel=t.TRAINING),
]  # fmt: skip
Epochs = Annotated[int, typer.Option("--epochs", help="Passes over the text.", rich_help_panel=t.TRAINING)]
LearningRate = Annotated[
    float, typer.Option("--learning-rate", "--lr", help="At its highest.", rich_help_panel=t.TRAINING)
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything that is drawn.", rich_help_panel=t.TRAINING)]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Folder of the trained model [default: runs/pretrain-MODEL-TEXT].", show_default=False
    ),
]


@app.command()
def pretrain(
    text: Text,
    corpus: o.AdaptedTo = None,
    model: o.Trained = None,
    general_text: GeneralText = None,
    format: Format = None,  # noqa: A002  (the option's name)
    field: Field = None,
    heldout: Heldout = Config.heldout,
    max_length: MaxLength = Config.max_length,
    eval_inputs: EvalInputs = Config.eval_inputs,
    mask_share: MaskShare = Config.mask_share,
    whole_words: WholeWords = Config.whole_words,
    only_new_rows: OnlyNewRows = Config.only_new_rows,
    head_steps: HeadSteps = Config.head_steps,
    head_learning_rate: HeadLearningRate = Config.head_learning_rate,
    mix: MixOption = GMAP_PRETRAINING.mix,
    epochs: Epochs = GMAP_PRETRAINING.epochs,
    learning_rate: LearningRate = GMAP_PRETRAINING.learning_rate,
    max_steps: t.MaxSteps = GMAP_PRETRAINING.max_steps,
    warmup: t.Warmup = GMAP_PRETRAINING.warmup,
    batch_size: t.BatchSize = GMAP_PRETRAINING.batch_size,
    weight_decay: t.WeightDecay = GMAP_PRETRAINING.weight_decay,
    clip: t.Clip = GMAP_PRETRAINING.clip,
    seed: Seed = Config.seed,
    precision: t.PrecisionOption = GMAP_PRETRAINING.precision,
    max_tokens: t.MaxTokens = Run.max_tokens,
    checkpoint_steps: t.CheckpointSteps = Run.checkpoint_steps,
    compile: t.Compile = Run.compile,  # noqa: A002  (the option's name)
    report_to: t.ReportTo = None,
    memory: m.Memory = None,
    strategy: m.StrategyOption = MemoryConfig.strategy,
    memory_attention: m.MemoryAttention = MemoryConfig.attention,
    memory_layers: m.MemoryLayers = None,
    memory_source: m.MemorySource = MemoryConfig.source,
    gate_init: m.GateInitOption = MemoryConfig.gate_init,
    memory_project: m.MemoryProject = MemoryConfig.project,
    unfreeze_memory: m.UnfreezeMemory = not MemoryConfig.frozen,
    workspace: o.WorkspaceFolder = None,
    out: OutFolder = None,
    force: o.Force = False,
    as_json: o.AsJson = False,
) -> None:
    """Train a model further as a masked language model on text: of a domain (DAPT), or of a task (TAPT)."""
    config = Config(
        max_length=max_length,
        heldout=heldout,
        mask_share=mask_share,
        whole_words=whole_words,
        only_new_rows=only_new_rows,
        head_steps=head_steps,
        head_learning_rate=head_learning_rate,
        eval_inputs=eval_inputs,
        seed=seed,
    )
    training = Train(
        mix=mix,
        epochs=epochs,
        max_steps=max_steps,
        learning_rate=learning_rate,
        warmup=warmup,
        batch_size=batch_size,
        weight_decay=weight_decay,
        clip=clip,
        precision=precision,
    )
    memory_config = MemoryConfig(
        strategy=strategy,
        attention=memory_attention,
        layers=m.parse_layers(memory_layers),
        source=memory_source,
        gate_init=gate_init,
        project=memory_project,
        frozen=not unfreeze_memory,
    )
    run = Run(max_tokens, checkpoint_steps, compile, tuple(report_to or ()))

    from greenadapt.cli.options.session import make_session
    from greenadapt.cli.output.console import print_json, print_table
    from greenadapt.cli.output.results import describe, print_results
    from greenadapt.report.tables import loss_tables
    from greenadapt.stages.pretrain import PretrainRequest, read_losses
    from greenadapt.stages.pretrain import pretrain as train
    from greenadapt.stages.session import adapted_model
    from greenadapt.workers import launched_processes

    session = make_session(workspace, out=out, force=force)
    request = PretrainRequest(
        model=adapted_model(session, corpus, model),
        texts=tuple(text),
        general_text=general_text,
        format=format,
        fields=tuple(field or ()),
        config=config,
        training=training,
        run=run,
        memory=memory,
        memory_config=memory_config,
    )
    result = train(session, request)
    if launched_processes()[0] > 0:
        return  # the first process prints
    scores = read_losses(result)
    if as_json:
        print_json({**describe(result), "scores": scores})
        return
    for table in loss_tables(scores):
        print_table(table.title, table.columns, table.rows)
    print_results([result], as_json=False)
