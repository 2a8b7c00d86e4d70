"""Options by which a general model becomes the memory of the model that is trained."""

from typing import Annotated

import typer

from greenadapt.config import GateInit, MemoryVariant, Strategy
from greenadapt.errors import UsageError

_MEMORY = "Memory of a general model (G-MAP)"

Memory = Annotated[
    str | None,
    typer.Option("--memory", help="A general model whose states the trained one sees: a folder, a hub id, or base for "
                 "the model that --model was adapted from.", show_default=False, rich_help_panel=_MEMORY),
]  # fmt: skip
StrategyOption = Annotated[
    Strategy,
    typer.Option("--strategy", help="Which states reach which layers; logits adds the general model's logits instead.",
                 rich_help_panel=_MEMORY),
]  # fmt: skip
MemoryAttention = Annotated[
    MemoryVariant,
    typer.Option("--memory-attention", help="One softmax over own keys and the memory's, or one of the paper's two "
                 "variants.", rich_help_panel=_MEMORY),
]  # fmt: skip
MemoryLayers = Annotated[
    str | None,
    typer.Option("--memory-layers", help="Layers that see memory, from 1, such as 6,12 [default: the strategy's].",
                 show_default=False, rich_help_panel=_MEMORY),
]  # fmt: skip
MemorySource = Annotated[
    str,
    typer.Option("--memory-source", help="Which states: as in the paper, reference as in its code (one layer lower), "
                 "or a range for each layer, such as 1-6,7-12.", rich_help_panel=_MEMORY),
]  # fmt: skip
GateInitOption = Annotated[
    GateInit,
    typer.Option("--gate-init", help="Gates begin as a plain mean, or at N(0, 0.02).", rich_help_panel=_MEMORY),
]
MemoryProject = Annotated[
    bool,
    typer.Option("--memory-project", help="Learn a map between models of different widths.", rich_help_panel=_MEMORY),
]
UnfreezeMemory = Annotated[
    bool, typer.Option("--unfreeze-memory", help="Train the general model, too.", rich_help_panel=_MEMORY)
]
CacheMemory = Annotated[
    bool,
    typer.Option("--cache-memory", help="Keep what the frozen model makes of the texts on disk, in the workspace.",
                 rich_help_panel=_MEMORY),
]  # fmt: skip
MaxCache = Annotated[
    str, typer.Option("--max-cache", help="Refuse to keep more than this, such as 20G.", rich_help_panel=_MEMORY)
]
MovedMemory = Annotated[
    str | None,
    typer.Option("--memory", help="Where the general model is that the model needs as its memory [default: where it "
                 "was in training].", show_default=False),
]  # fmt: skip


def parse_layers(text: str | None) -> tuple[int, ...]:
    """``6,12`` → (6, 12); raises ``UsageError``."""
    try:
        return () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--memory-layers is {text!r}, must be numbers such as 6,12") from None
