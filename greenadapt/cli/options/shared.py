"""Options that several commands share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from greenadapt.config import AlignMethod, DType, EngineName, Gradient, OovRule, RandomScaleName, RowRecipe

Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="A named corpus (greenadapt corpus list), a recipe (.toml), a text file, or - for standard input.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A model folder, a hub id, or minilm; may be left out where only one was used.",
        show_default=False,
    ),
]
CorpusOfResults = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="The corpus whose results in the workspace are meant, by its name or its file.",
        show_default=False,
    ),
]
AdaptedTo = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        "-c",
        help="Train the model in the workspace that was adapted to this corpus; no text is read from it.",
        show_default=False,
    ),
]
Trained = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="The model to train: a folder, adapted or not, a hub id, or minilm; with --corpus, the one that was "
        "adapted, which may be left out where only one was.",
        show_default=False,
    ),
]
WorkspaceFolder = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        help="Where results lie [default: $GREENADAPT_HOME, else the user's data folder].",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write the result into this folder instead of the workspace.", show_default=False),
]
Variant = Annotated[
    str | None,
    typer.Option("--variant", help="Keep the result under this name beside the plain one.", show_default=False),
]
VariantOfResults = Annotated[
    str | None,
    typer.Option(
        "--variant", help="The results that were kept under this name, where there are such.", show_default=False
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Do it again, and replace a result of another configuration or input.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch the corpus from its publisher where it is not here yet.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Processes or threads [default: one a core]. One gives the same bits every time.",
        show_default=False,
    ),
]
MaxMemory = Annotated[
    str, typer.Option("--max-memory", help="Refuse to need more memory than this, such as 500M or 8G.")
]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of a text file, where its name does not say it.", show_default=False),
]
Field = Annotated[
    list[str] | None,
    typer.Option(
        "--field", help="Field (JSON lines) or column (CSV, TSV) that holds text; may be repeated.", show_default=False
    ),
]
KeepDuplicates = Annotated[
    bool | None,
    typer.Option(
        "--keep-duplicates/--drop-duplicates", help="Exact duplicate documents [default: dropped].", show_default=False
    ),
]
Strict = Annotated[
    bool | None,
    typer.Option(
        "--strict/--lenient",
        help="Refuse broken UTF-8, or skip broken JSON lines, too [default: replace the former, refuse the latter].",
        show_default=False,
    ),
]
MaxDocumentBytes = Annotated[
    str | None,
    typer.Option(
        "--max-document-bytes",
        help="Refuse text with a longer document, such as 1G [default: 128M, a sixteenth of --max-memory at most].",
        show_default=False,
    ),
]
MaxWordChars = Annotated[
    int | None,
    typer.Option(
        "--max-word-chars",
        help="Refuse text with more characters between two spaces [default: 1000000].",
        show_default=False,
    ),
]
Heldout = Annotated[
    float | None,
    typer.Option(
        "--heldout", help="Share of the documents kept out of training, to measure on [default: 0].", show_default=False
    ),
]

# -- w2v

Dim = Annotated[
    int | None,
    typer.Option("--dim", help="Width of the vectors [default: the model's embedding width].", show_default=False),
]
Window = Annotated[int, typer.Option("--window", help="Words on each side that make the context.")]
Negative = Annotated[int, typer.Option("--negative", help="Noise words drawn for each word.")]
Sample = Annotated[float, typer.Option("--sample", help="Frequency above which words are thinned out; 0 for never.")]
NsExponent = Annotated[float, typer.Option("--ns-exponent", help="Power of the counts that noise words are drawn by.")]
MinCount = Annotated[int, typer.Option("--min-count", help="Words seen less often get no vector.")]
MaxVocab = Annotated[
    int | None, typer.Option("--max-vocab", help="At most this many words, the most frequent ones.", show_default=False)
]
Epochs = Annotated[int, typer.Option("--epochs", help="Passes over the corpus.")]
Alpha = Annotated[float, typer.Option("--alpha", help="Learning rate at the start.")]
MinAlpha = Annotated[float, typer.Option("--min-alpha", help="Learning rate at the end.")]
CbowMean = Annotated[bool, typer.Option("--cbow-mean/--cbow-sum", help="Average or add the context's vectors.")]
ShrinkWindows = Annotated[
    bool,
    typer.Option("--shrink-windows/--full-windows", help="Draw each window's size up to --window, as word2vec does."),
]
Engine = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="Our own, several times as fast (needs numba), or gensim's kernel; auto: ours where numba is installed.",
    ),
]
GradientOption = Annotated[
    Gradient, typer.Option("--gradient", help="As word2vec has it, or each word's own share (not --engine gensim).")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the random numbers in training and fitting.")]

# -- align

Method = Annotated[AlignMethod, typer.Option("--method", help="How the map is fitted; lstsq is the paper's.")]
Ridge = Annotated[float, typer.Option("--ridge", help="Penalty of --method ridge, in mean squared singular values.")]
RandomScale = Annotated[
    RandomScaleName,
    typer.Option("--random-scale", help="Rows of --method random: as BERT starts, or as the base rows."),
]

# -- expand

Rows = Annotated[RowRecipe, typer.Option("--rows", help="How a new row is made; map is the paper's.")]
Blend = Annotated[float, typer.Option("--blend", help="Weight of the mapped vector under --rows blend.")]
Oov = Annotated[
    OovRule, typer.Option("--oov", help="Words without a row: cut as the base model does (paper), or by longest match.")
]
ReplaceAll = Annotated[
    bool,
    typer.Option(
        "--replace-all", help="Replace the rows of words that the model has, too (worse; the paper's ablation)."
    ),
]
MaxWords = Annotated[
    int | None, typer.Option("--max-words", help="At most this many new words, the most frequent.", show_default=False)
]
MinWordCount = Annotated[int, typer.Option("--min-count", help="New words seen less often get no row.")]
MinPieces = Annotated[int, typer.Option("--min-pieces", help="Words that the model cuts into fewer pieces get no row.")]
RestrictTo = Annotated[
    list[Path] | None,
    typer.Option(
        "--restrict-to", help="Only words that occur in this file get a row; may be repeated.", show_default=False
    ),
]
Dtype = Annotated[
    DType | None,
    typer.Option("--dtype", help="Number type of the weights [default: the model's own].", show_default=False),
]

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_bytes(text: str, option: str = "--max-memory") -> int:
    """``500M`` → bytes (binary units); raises ``UsageError``."""
    from greenadapt.errors import UsageError

    number, unit = text.strip().upper().removesuffix("IB").removesuffix("B"), ""
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], number[-1]
    try:
        value = int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise UsageError(f"{option} is {text!r}, must be a number of bytes such as 500M or 8G") from None
    if value <= 0:
        raise UsageError(f"{option} is {text!r}, must be more than nothing")
    return value


def given(ctx: typer.Context) -> set[str]:
    """The parameters that the user gave."""
    sources: dict[str, Any] = {name: ctx.get_parameter_source(name) for name in ctx.params}
    return {name for name, source in sources.items() if source.name != "DEFAULT"}


def refuse(given: set[str], options: Mapping[str, str], why: str) -> None:
    """Raise ``UsageError`` where one of ``options``, by the parameter's name, was ``given``; ``why`` ends it."""
    from greenadapt.errors import UsageError

    for name, option in options.items():
        if name in given:
            raise UsageError(f"{option} {why}")
