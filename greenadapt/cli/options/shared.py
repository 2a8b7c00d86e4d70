"""Options that several commands share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from greenadapt.config import Panel, Pool
from greenadapt.errors import UsageError

Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="A named corpus (see greenadapt corpus list), a recipe (.toml), a text file, or - for standard input.",
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A model folder, a hub id, minilm or mpnet [default: the only one used so far].",
    ),
]
CorpusOfResults = Annotated[
    str | None,
    typer.Option("--corpus", "-c", help="The corpus whose results in the workspace to use, by name or file."),
]
AdaptedTo = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="Train the model in the workspace that was adapted to this corpus; no text is read from it.",
    ),
]
Trained = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="The model to train: a folder, adapted or not, a hub id, minilm or mpnet; with --corpus, the base of the "
        "adapted model [default: the only one].",
    ),
]
WorkspaceFolder = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        help="Folder of all results [default: $GREENADAPT_HOME, else the user's data folder].",
        rich_help_panel=Panel.RESULTS,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Write the result to this folder instead of the workspace.", rich_help_panel=Panel.RESULTS
    ),
]
Variant = Annotated[
    str | None,
    typer.Option(
        "--variant", help="Keep the result under this name next to the plain one.", rich_help_panel=Panel.RESULTS
    ),
]
VariantOfResults = Annotated[
    str | None,
    typer.Option(
        "--variant", help="Use the results kept under this name, if there are any.", rich_help_panel=Panel.RESULTS
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Redo it, replacing a result of other settings or input.", rich_help_panel=Panel.RESULTS
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Download = Annotated[
    bool,
    typer.Option("--download", help="Download the corpus from its publisher if needed.", rich_help_panel=Panel.TEXT),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Processes or threads [default: one per core]. With 1, runs are bit-for-bit reproducible.",
        rich_help_panel=Panel.MACHINE,
    ),
]
MaxMemory = Annotated[
    str,
    typer.Option(
        "--max-memory", help="Refuse to use more memory than this, such as 500M or 8G.", rich_help_panel=Panel.MACHINE
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="A general model whose states the trained model sees: a folder, a hub id, or base for the model that "
        "--model was adapted from.",
        rich_help_panel=Panel.MEMORY,
    ),
]
MovedMemory = Annotated[
    str | None,
    typer.Option(
        "--memory", help="Where the general model is that the model uses as memory [default: as in training]."
    ),
]
PoolOrTrained = Annotated[
    Pool | None,
    typer.Option(
        "--pool",
        help="Which logits to predict with: the mean over both tokenizations, or those of one [default: as trained].",
    ),
]
SeedOfFolder = Annotated[
    int | None, typer.Option("--seed", help="Which of the folder's seeds predicts [default: the first].")
]


def given(ctx: typer.Context) -> set[str]:
    """The parameters that the user gave."""
    sources: dict[str, Any] = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name for name, source in sources.items() if source.name != "DEFAULT"}


def refuse(given: set[str], options: Mapping[str, str], why: str) -> None:
    """Raise ``UsageError`` where one of ``options``, by the parameter's name, was ``given``; ``why`` ends it."""
    for name, option in options.items():
        if name in given:
            raise UsageError(f"{option} {why}")
