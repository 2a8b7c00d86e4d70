"""Options by which many tasks share one encoder."""

from pathlib import Path
from typing import Annotated

import typer

from greenadapt.config import AdapterForm, AdapterInit, AdapterName, Placement
from greenadapt.config import Sampling as SamplingName

_MANY = "Many tasks on one encoder (PALs)"

TasksFile = Annotated[
    Path | None,
    typer.Option("--tasks", help="A file (.toml) of the tasks that share one encoder, in place of --task and --train.",
                 show_default=False, rich_help_panel=_MANY),
]  # fmt: skip
AddTo = Annotated[
    Path | None,
    typer.Option("--add-to", help="Add the tasks to this folder of a shared encoder, which stays as it is.",
                 show_default=False, rich_help_panel=_MANY),
]  # fmt: skip
Adapter = Annotated[
    AdapterName,
    typer.Option("--adapter", help="What each task adds to the encoder; none: only its head.", rich_help_panel=_MANY),
]
Size = Annotated[
    int | None,
    typer.Option("--adapter-size", help="Width of an adapter [default: the paper's, in proportion to the model's].",
                 show_default=False, rich_help_panel=_MANY),
]  # fmt: skip
Heads = Annotated[
    int | None,
    typer.Option("--adapter-heads", help="Attention heads of an adapter [default: of 17 numbers or a few more].",
                 show_default=False, rich_help_panel=_MANY),
]  # fmt: skip
Layers = Annotated[
    str,
    typer.Option("--layers", help="Layers that have adapters: all, top, bottom (half), or such as 1,3.",
                 rich_help_panel=_MANY),
]  # fmt: skip
PlacementOption = Annotated[
    Placement, typer.Option("--placement", help="Beside a layer or behind it.", rich_help_panel=_MANY)
]
Form = Annotated[
    AdapterForm,
    typer.Option("--adapter-form", help="As in the paper, or as in its released code.", rich_help_panel=_MANY),
]
Init = Annotated[
    AdapterInit,
    typer.Option("--adapter-init", help="N(0, 0.02), or zero for what projects up: begins as the plain model.",
                 rich_help_panel=_MANY),
]  # fmt: skip
FreezeEncoder = Annotated[
    bool, typer.Option("--freeze-encoder", help="Train adapters and heads only.", rich_help_panel=_MANY)
]
Sampling = Annotated[
    SamplingName,
    typer.Option("--sampling", help="Which task makes a step: in turn, or drawn in proportion to its number of "
                 "examples, to the root of that, or from the first towards equal shares.", rich_help_panel=_MANY),
]  # fmt: skip
StepsPerEpoch = Annotated[
    int | None,
    typer.Option("--steps-per-epoch", help="Steps of all tasks together [default: as many as batches of all tasks].",
                 show_default=False, rich_help_panel=_MANY),
]  # fmt: skip
_NAMES = (
    *("add_to", "adapter", "adapter_size", "adapter_heads", "layers", "placement", "adapter_form", "adapter_init"),
    *("freeze_encoder", "sampling", "steps_per_epoch"),
)
OF_MANY_TASKS = {name: f"--{name.replace('_', '-')}" for name in _NAMES}
"""Parameters that only training many tasks has → their options."""
