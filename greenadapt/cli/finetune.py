"""``greenadapt finetune``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenadapt.cli import app
from greenadapt.cli.options import adapters as a
from greenadapt.cli.options import memory as m
from greenadapt.cli.options import shared as o
from greenadapt.cli.options import tasks as k
from greenadapt.cli.options import training as t
from greenadapt.config import (
    PALS_PAPER,
    PALS_PAPER_SAMPLING,
    PAPER,
    AdapterConfig,
    Keep,
    MemoryConfig,
    Mix,
    Pool,
    SamplingConfig,
)
from greenadapt.config import RunConfig as Run
from greenadapt.config import TaskConfig as Task
from greenadapt.config import TrainConfig as Train
from greenadapt.errors import UsageError

if TYPE_CHECKING:
    from greenadapt.stages.session import Session

_COMPARE = "Comparison"
_TRAINING = (
    *("mix", "pool", "epochs", "max_steps", "learning_rate", "warmup", "batch_size", "weight_decay", "clip"),
    *("precision", "keep", "patience"),
)
"""Options that are fields of ``TrainConfig``."""


@dataclass(frozen=True)
class _Start:
    """What the user says that training begins with."""

    corpus: str | None
    """That the model was adapted to."""
    model: str | None
    add_to: Path | None = None
    """The folder of a shared encoder that tasks are added to."""

    def __post_init__(self) -> None:
        if self.add_to is not None and not (self.corpus is None and self.model is None):
            raise UsageError("--add-to trains on the encoder of its folder", "leave out --model and --corpus")


class Preset(StrEnum):
    """Settings by one name."""

    paper = "paper"


MixOption = Annotated[
    Mix,
    typer.Option("--mix", help="Which tokenization an example trains in: a coin for each example and epoch, for each "
                 "example once, for each batch; both; or always the one.", rich_help_panel=t.TRAINING),
]  # fmt: skip
PoolOption = Annotated[
    Pool,
    typer.Option("--pool", help="Whose logits decide: the mean of both, or one.", rich_help_panel=t.TRAINING),
]
Epochs = Annotated[int, typer.Option("--epochs", help="Passes over the training set.", rich_help_panel=t.TRAINING)]
LearningRate = Annotated[
    float, typer.Option("--learning-rate", "--lr", help="At its highest.", rich_help_panel=t.TRAINING)
]
PresetOption = Annotated[
    Preset | None,
    typer.Option("--preset", help=f"paper: {PAPER.epochs} epochs, learning rate {PAPER.learning_rate}; with --tasks "
                 f"{PALS_PAPER.epochs} and {PALS_PAPER.learning_rate}.",
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
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Folder of the fine-tuned model [default: runs/TASK-MODEL-DATA, with --tasks runs/tasks-MODEL-NAMES, "
        "and with a memory -STRATEGY behind it].",
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
    ctx: typer.Context,
    train: k.TrainFile = None,
    task: k.TaskOption = None,
    corpus: o.AdaptedTo = None,
    model: o.Trained = None,
    dev: k.Dev = None,
    test: k.Test = None,
    text_field: k.TextField = None,
    label_field: k.LabelField = Task.label_field,
    labels: k.Labels = Task.label_kind,
    chunk: k.Chunk = None,
    whole_sentences: k.WholeSentences = False,
    gold_chunks: k.GoldChunks = Task.gold_chunks,
    x_class: k.XClass = Task.x_class,
    negatives: k.Negatives = Task.negatives,
    max_length: k.MaxLength = Task.max_length,
    mix: MixOption = Train.mix,
    pool: PoolOption = Train.pool,
    preset: PresetOption = None,
    epochs: Epochs = Train.epochs,
    learning_rate: LearningRate = Train.learning_rate,
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
    save_logits: k.SaveLogits = False,
    tasks: a.TasksFile = None,
    add_to: a.AddTo = None,
    adapter: a.Adapter = AdapterConfig.adapter,
    adapter_size: a.Size = AdapterConfig.size,
    adapter_heads: a.Heads = AdapterConfig.heads,
    layers: a.Layers = AdapterConfig.layers,
    placement: a.PlacementOption = AdapterConfig.placement,
    adapter_form: a.Form = AdapterConfig.form,
    adapter_init: a.Init = AdapterConfig.init,
    freeze_encoder: a.FreezeEncoder = AdapterConfig.freeze_encoder,
    sampling: a.Sampling = SamplingConfig.sampling,
    steps_per_epoch: a.StepsPerEpoch = SamplingConfig.steps_per_epoch,
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
    """Train NER, classification or question answering on a mixture of both tokenizations, and score it.

    With --tasks, many tasks at once on one shared encoder.
    """
    given = o.given(ctx)
    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}, must be at least 1")
    usual = Train() if preset is None else PAPER if tasks is None else PALS_PAPER
    training = replace(usual, **{name: ctx.params[name] for name in _TRAINING if name in given})
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
    common = {"training": training, "run": run, "seeds": tuple(range(seed, seed + seeds))}
    common |= {"memory": memory, "memory_config": memory_config}

    from greenadapt.cli.options.session import make_session

    session = make_session(workspace, out=out, force=force)
    if tasks is None:
        o.refuse(given, a.OF_MANY_TASKS, "is for tasks that share an encoder: give these with --tasks, or leave it out")
        sources = {"train": tuple(train or ()), "dev": dev, "test": test}
        request = {**common, **sources, "task": k.task_config(ctx.params), "save_logits": save_logits}
        if reference is not None and compare is None:
            raise UsageError("--reference needs --compare", "name the base model with --compare")
        others = [name for name in (compare, reference) if name is not None]
        _train_one(session, _Start(corpus, model), request, others, as_json=as_json)
        return
    o.refuse(given, k.OF_ONE_TASK, "is for one task, and --tasks has a file that says what each is: leave it out")
    start = _Start(corpus, model, add_to)
    if add_to is not None:
        why = "does not go with --add-to, which trains each task alone and puts it into that folder: leave it out"
        o.refuse(given, {"out": "--out", "sampling": "--sampling"}, why)
    adapters = AdapterConfig(
        adapter=adapter,
        size=adapter_size,
        heads=adapter_heads,
        layers=layers,
        placement=placement,
        form=adapter_form,
        init=adapter_init,
        freeze_encoder=freeze_encoder,
    )
    chosen = {name: ctx.params[name] for name in ("sampling", "steps_per_epoch") if name in given}
    usual_sampling = SamplingConfig() if preset is None else PALS_PAPER_SAMPLING
    request = {**common, "adapter": adapters, "sampling": replace(usual_sampling, **chosen)}
    _train_many(session, start, tasks, request, as_json=as_json)


def _train_one(
    session: "Session",
    start: _Start,
    request: dict[str, Any],
    others: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """``others`` are the base model and the reference that are compared, as far as they are asked for."""
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.results import describe, print_results
    from greenadapt.cli.output.tables import print_comparison, print_scores
    from greenadapt.stages.finetune.compare import compare as compare_models
    from greenadapt.stages.finetune.request import FinetuneRequest
    from greenadapt.stages.finetune.train import read_scores
    from greenadapt.stages.session import adapted_model
    from greenadapt.workers import launched_processes

    asked = FinetuneRequest.of_one(model=adapted_model(session, start.corpus, start.model), **request)
    compared = compare_models(session, asked, others)
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


def _train_many(
    session: "Session",
    start: _Start,
    tasks: Path,
    request: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.results import describe, print_results
    from greenadapt.cli.output.tables import print_scores
    from greenadapt.stages.finetune.add_task import add_tasks
    from greenadapt.stages.finetune.request import FinetuneRequest
    from greenadapt.stages.finetune.train import finetune as train
    from greenadapt.stages.finetune.train import read_scores
    from greenadapt.stages.session import adapted_model
    from greenadapt.tasks.tasks_file import read_tasks_file
    from greenadapt.workers import launched_processes

    add_to = start.add_to
    chosen = adapted_model(session, start.corpus, start.model) if add_to is None else str(add_to)
    asked = FinetuneRequest(model=chosen, tasks=read_tasks_file(tasks), **request)
    results = [train(session, asked)] if add_to is None else add_tasks(session, add_to, asked)
    if launched_processes()[0] > 0:
        return  # the first process prints
    for result in results:
        scores = read_scores(result)
        if as_json:
            print_json({**describe(result), "scores": scores})
        else:
            print_scores(scores)
    if not as_json:
        print_results(results, as_json=False)
