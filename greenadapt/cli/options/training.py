"""Options of every command that trains a model."""

from typing import Annotated

import typer

from greenadapt.config import Precision

TRAINING, MACHINE = "Training", "Machine"
"""Panels of the help."""

MaxSteps = Annotated[
    int | None,
    typer.Option("--max-steps", help="Stop after so many steps.", show_default=False, rich_help_panel=TRAINING),
]
Warmup = Annotated[
    float, typer.Option("--warmup", help="Share of the steps before the highest rate.", rich_help_panel=TRAINING)
]
BatchSize = Annotated[int, typer.Option("--batch-size", help="Examples a step.", rich_help_panel=TRAINING)]
WeightDecay = Annotated[float, typer.Option("--weight-decay", help="Decoupled weight decay.", rich_help_panel=TRAINING)]
Clip = Annotated[float, typer.Option("--clip", help="Largest norm of the gradient.", rich_help_panel=TRAINING)]
PrecisionOption = Annotated[
    Precision, typer.Option("--precision", help="auto: bfloat16 on a GPU that has it.", rich_help_panel=MACHINE)
]
MaxTokens = Annotated[
    int,
    typer.Option("--max-tokens", help="Pieces that go through the model at once; lower it where memory runs out.",
                 rich_help_panel=MACHINE),
]  # fmt: skip
CheckpointSteps = Annotated[
    int,
    typer.Option("--checkpoint-steps", help="Steps between two states on disk, beside one an epoch.",
                 rich_help_panel=MACHINE),
]  # fmt: skip
Compile = Annotated[bool, typer.Option("--compile", help="Compile the model first.", rich_help_panel=MACHINE)]
ReportTo = Annotated[
    list[str] | None,
    typer.Option("--report-to", help="A tracker, such as tensorboard or wandb; may be repeated.", show_default=False,
                 rich_help_panel=MACHINE),
]  # fmt: skip
