"""Options that predict, evaluate and qa share."""

from typing import TYPE_CHECKING, Annotated

import typer

from greenadapt.config import Pool, Precision

if TYPE_CHECKING:
    pass


PoolOption = Annotated[
    Pool | None,
    typer.Option(
        "--pool",
        help="Whose logits decide: the mean of both tokenizations, or one (default: as trained).",
        show_default=False,
    ),
]


Seed = Annotated[
    int | None,
    typer.Option("--seed", help="Which of the folder's seeds predicts (default: the first).", show_default=False),
]


PrecisionOption = Annotated[Precision, typer.Option("--precision", help="auto: bfloat16 on a GPU that has it.")]


MaxTokens = Annotated[
    int, typer.Option("--max-tokens", help="Pieces that go through the model at once; lower it where memory runs out.")
]
