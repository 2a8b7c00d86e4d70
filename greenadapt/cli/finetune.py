"""``greenadapt finetune``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import memory_options as m
from greenadapt.cli import options as o
from greenadapt.cli import training_options as t
from greenadapt.config import PAPER, Keep, LabelKind, MemoryConfig, Mix, Pool, TaskName
from greenadapt.config import RunConfig as Run
from greenadapt.config import TaskConfig as Task
from greenadapt.config import TrainConfig as Train
from greenadapt.errors import UsageError

_DATA, _NER, _TEXT, _QA, _COMPARE = "Data", "NER", "Classification", "Question answering", "Comparison"


class Preset(StrEnum):
    """Settings by one name."""

    paper = "paper"


TaskOption = Annotated[TaskName, typer.Option("--task", help="What is learnt.", show_default=False)]
TrainFile = Annotated[
    list[str],
    typer.Option("--train", help="A labelled file, or a data set of the hub; may be repeated.", show_default=False,
                 rich_help_panel=_DATA),
]  # fmt: skip
Dev = Annotated[
    str | None,
    typer.Option("--dev", help="Labelled file scored after every epoch.", show_default=False, rich_help_panel=_DATA),
]
Test = Annotated[
    str | None,
    typer.Option("--test", help="Labelled file scored at the end.", show_default=False, rich_help_panel=_DATA),
]
TextField = Annotated[
    list[str] | None,
    typer.Option("--text-field", help="Field or column of the text; twice for a pair [default: text].",
                 show_default=False, rich_help_panel=_TEXT),
]  # fmt: skip
LabelField = Annotated[str, typer.Option("--label-field", help="Field or column of the label.", rich_help_panel=_TEXT)]
Labels = Annotated[
    LabelKind,
    typer.Option("--labels", help="Classes, or numbers to be predicted; auto: numbers where they have fractions.",
                 rich_help_panel=_TEXT),
]  # fmt: skip
Chunk = Annotated[
    int | None,
    typer.Option("--chunk", help=f"At most this many words are read at once [default: {Task.chunk}].",
                 show_default=False, rich_help_panel=_NER),
]  # fmt: skip
WholeSentences = Annotated[
    bool, typer.Option("--whole-sentences", help="Read whole sentences instead of chunks.", rich_help_panel=_NER)
]
GoldChunks = Annotated[
    bool,
    typer.Option("--gold-chunks", help="Cut test sentences by their gold tags, too, as the paper did.",
                 rich_help_panel=_NER),
]  # fmt: skip
XClass = Annotated[
    bool,
    typer.Option("--x-class", help="Pieces inside a word, [CLS] and [SEP] are a class of their own, as in BioBERT's "
                 "code.",
                 rich_help_panel=_NER),
]  # fmt: skip
Negatives = Annotated[
    int,
    typer.Option("--negatives", help="Windows without the answer that a question trains on.", rich_help_panel=_QA),
]
MaxLength = Annotated[
    int | None,
    typer.Option("--max-length", help="Pieces read at once [default: all that the model can].", show_default=False,
                 rich_help_panel=t.TRAINING),
]  # fmt: skip
MixOption = Annotated[
    Mix,
    typer.Option("--mix", help="Which tokenization an example trains in: a coin for each example and epoch, for each "
                 "example once, for each batch; both; or always the one.", rich_help_panel=t.TRAINING),
]  # fmt: skip
PoolOption = Annotated[
    Pool,
    typer.Option("--pool", help="Whose logits decide: the mean of both, or one.", rich_help_panel=t.TRAINING),
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", help=f"Passes over the training set [default: {Train.epochs}].", show_default=False,
                 rich_help_panel=t.TRAINING),
]  # fmt: skip
LearningRate = Annotated[
    float | None,
    typer.Option("--learning-rate", "--lr", help=f"At its highest [default: {Train.learning_rate}].",
                 show_default=False, rich_help_panel=t.TRAINING),
]  # fmt: skip
PresetOption = Annotated[
    Preset | None,
    typer.Option("--preset", help=f"paper: {PAPER.epochs} epochs, learning rate {PAPER.learning_rate}.",
                 show_default=False, rich_help_panel=t.TRAINING),
]  # fmt: skip
KeepOption = Annotated[
    Keep, typer.Option("--keep", help="The last epoch's model, or the best on --dev.", rich_help_panel=t.TRAINING)
]
Patience = Annotated[
    int | None,
    typer.Option("--patience", help="Stop after so many epochs without a better --dev score.", show_default=False,
                 rich_help_panel=t.TRAINING),
]  # fmt: skip
Seeds = Annotated[
    int, typer.Option("--seeds", help="How many models are trained, each from its seed.", rich_help_panel=t.TRAINING)
]
FirstSeed = Annotated[int, typer.Option("--seed", help="The first of the seeds.", rich_help_panel=t.TRAINING)]
SaveLogits = Annotated[
    bool, typer.Option("--save-logits", help="Keep the logits of the test set.", rich_help_panel=_DATA)
]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Folder of the fine-tuned model [default: runs/TASK-MODEL, with a memory runs/TASK-MODEL-STRATEGY].",
        show_default=False,
    ),
]
Compare = Annotated[
    str | None,
    typer.Option("--compare", help="Train this model alike (the base model) and print the difference.",
                 show_default=False, rich_help_panel=_COMPARE),
]  # fmt: skip
Reference = Annotated[
    str | None,
    typer.Option("--reference", help="Train this third model, too (one pre-trained on the domain), and print which "
                 "share of the gap to it is covered.", show_default=False, rich_help_panel=_COMPARE),
]  # fmt: skip


@app.command()
def finetune(
    train: TrainFile,
    task: TaskOption,
    corpus: o.Corpus = None,
    model: o.Model = None,
    dev: Dev = None,
    test: Test = None,
    text_field: TextField = None,
    label_field: LabelField = Task.label_field,
    labels: Labels = Task.label_kind,
    chunk: Chunk = None,
    whole_sentences: WholeSentences = False,
    gold_chunks: GoldChunks = Task.gold_chunks,
    x_class: XClass = Task.x_class,
    negatives: Negatives = Task.negatives,
    max_length: MaxLength = Task.max_length,
    mix: MixOption = Train.mix,
    pool: PoolOption = Train.pool,
    preset: PresetOption = None,
    epochs: Epochs = None,
    learning_rate: LearningRate = None,
    max_steps: t.MaxSteps = Train.max_steps,
    warmup: t.Warmup = Train.warmup,
    batch_size: t.BatchSize = Train.batch_size,
    weight_decay: t.WeightDecay = Train.weight_decay,
    clip: t.Clip = Train.clip,
    keep: KeepOption = Train.keep,
    patience: Patience = Train.patience,
    seeds: Seeds = 1,
    seed: FirstSeed = 0,
    precision: t.PrecisionOption = Train.precision,
    max_tokens: t.MaxTokens = Run.max_tokens,
    checkpoint_steps: t.CheckpointSteps = Run.checkpoint_steps,
    compile: t.Compile = Run.compile,  # noqa: A002  (the option's name)
    report_to: t.ReportTo = None,
    save_logits: SaveLogits = False,
    memory: m.Memory = None,
    strategy: m.StrategyOption = MemoryConfig.strategy,
    memory_attention: m.MemoryAttention = MemoryConfig.attention,
    memory_layers: m.MemoryLayers = None,
    memory_source: m.MemorySource = MemoryConfig.source,
    gate_init: m.GateInitOption = MemoryConfig.gate_init,
    memory_project: m.MemoryProject = MemoryConfig.project,
    unfreeze_memory: m.UnfreezeMemory = not MemoryConfig.frozen,
    cache_memory: m.CacheMemory = Run.cache_memory,
    max_cache: m.MaxCache = f"{Run.max_cache >> 30}G",
    compare: Compare = None,
    reference: Reference = None,
    workspace: o.WorkspaceFolder = None,
    out: OutFolder = None,
    force: o.Force = False,
    as_json: o.AsJson = False,
) -> None:
    """Train NER, classification or question answering on a mixture of both tokenizations, and score it."""
    if reference is not None and compare is None:
        raise UsageError("--reference needs --compare", "name the base model with --compare")
    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}, must be at least 1")
    if whole_sentences and chunk is not None:
        raise UsageError("--chunk and --whole-sentences exclude each other", "leave out one of them")
    if not whole_sentences and chunk is None:
        chunk = Task.chunk
    usual = PAPER if preset else Train()
    training = Train(
        mix=mix,
        pool=pool,
        epochs=usual.epochs if epochs is None else epochs,
        learning_rate=usual.learning_rate if learning_rate is None else learning_rate,
        max_steps=max_steps,
        warmup=warmup,
        batch_size=batch_size,
        weight_decay=weight_decay,
        clip=clip,
        precision=precision,
        keep=keep,
        patience=patience,
    )
    examples = Task(
        task=task,
        text_fields=tuple(text_field or Task.text_fields),
        label_field=label_field,
        label_kind=labels,
        chunk=chunk,
        gold_chunks=gold_chunks,
        x_class=x_class,
        negatives=negatives,
        max_length=max_length,
    )
    run = Run(
        max_tokens=max_tokens,
        checkpoint_steps=checkpoint_steps,
        compile=compile,
        report_to=tuple(report_to or ()),
        cache_memory=cache_memory,
        max_cache=o.parse_bytes(max_cache, "--max-cache"),
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

    from greenadapt.cli.console import print_json
    from greenadapt.cli.scores import print_comparison, print_scores
    from greenadapt.cli.session import describe, make_session, print_results
    from greenadapt.pipeline.adapted import adapted_model
    from greenadapt.pipeline.compare import compare as compare_models
    from greenadapt.pipeline.finetune import FinetuneRequest, read_scores
    from greenadapt.processes import launched_processes

    session = make_session(workspace, out=out, force=force)
    request = FinetuneRequest(
        model=adapted_model(session, corpus, model),
        train=tuple(train),
        dev=dev,
        test=test,
        task=examples,
        training=training,
        run=run,
        seeds=tuple(range(seed, seed + seeds)),
        save_logits=save_logits,
        memory=memory,
        memory_config=memory_config,
    )
    compared = compare_models(session, request, [name for name in (compare, reference) if name is not None])
    if launched_processes()[0] > 0:
        return  # the first process prints
    scores = read_scores(compared.results[0])
    if as_json:
        print_json({**describe(compared.results[0]), "scores": scores, "comparison": compared.rows})
        return
    print_scores(scores)
    if compared.rows:
        print_comparison(compared.rows)
    print_results(compared.results, as_json=False)
