"""``greenadapt predict``."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from greenadapt.cli import app
from greenadapt.cli.memory_options import MovedMemory
from greenadapt.config import EnsembleRule, Pool, Precision
from greenadapt.config import RunConfig as Run
from greenadapt.config import TrainConfig as Train
from greenadapt.errors import ConflictError, MissingError, UsageError

if TYPE_CHECKING:
    from greenadapt.pipeline.predict import Prediction

_BREAKS = str.maketrans("\t\r\n", "   ")

Models = Annotated[
    list[str],
    typer.Option("--model", "-m", help="A folder that finetune wrote; several are averaged.", show_default=False),
]
Ensemble = Annotated[
    EnsembleRule | None,
    typer.Option("--ensemble", help="What is averaged over several --model [default: logits].", show_default=False),
]
Input = Annotated[
    str,
    typer.Option(
        "--input", "-i", help="Text, one entry a line, or JSON lines; compressed or not; - is standard input."
    ),
]
Format = Annotated[
    Literal["text", "jsonl", "squad"] | None,
    typer.Option(
        "--format",
        help="Format of the input; jsonl is JSON lines or one JSON array (default: jsonl where its name ends in "
        ".jsonl, .json or .ndjson, squad for question answering on a .json, else text).",
        show_default=False,
    ),
]
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
Bio = Annotated[bool, typer.Option("--bio", help="NER: write a word and its tag a line instead of JSON.")]
Tags = Annotated[bool, typer.Option("--tags", help="NER: write all words and tags beside the entities.")]
OutFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write into this file, once complete, instead of stdout; compressed where its name ends in .gz, .bz2, "
        ".xz or .zst.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines, which the output is anyway.")]


@app.command()
def predict(
    model: Models,
    ensemble: Ensemble = None,
    source: Input = "-",
    format: Format = None,  # noqa: A002  (the option's name)
    pool: PoolOption = None,
    seed: Seed = None,
    precision: PrecisionOption = Train.precision,
    max_tokens: MaxTokens = Run.max_tokens,
    memory: MovedMemory = None,
    bio: Bio = False,
    tags: Tags = False,
    out: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Predict with fine-tuned models: one JSON object a line, in the order of the input.

    Each has the number of its line and the id of its record, if it had one; NER gives entities with characters and
    scores. The input is read as it comes. A broken line ends it with exit code 1, after the rows before it.
    """
    from greenadapt.cli.console import make_progress
    from greenadapt.pipeline.predict import Predictor, PredictRequest
    from greenadapt.pipeline.task_models import ReadingOptions

    if bio and as_json:
        raise UsageError("--bio writes a word a line, no JSON", "leave out --bio or --json")
    if out is not None:
        check_file(out)
    reading = ReadingOptions(pool, seed, precision, max_tokens, memory=memory)
    predictor = Predictor(PredictRequest(tuple(model), source, format, reading, ensemble))
    style = _Style(bio, tags, predictor.task.name)
    with open_output(out) as (stream, is_ascii):
        for block in predictor.predict(make_progress(is_read=False)):
            stream.writelines(style.lines(block, is_ascii=is_ascii))
            stream.flush()


def check_file(path: Path) -> None:
    """Refuse a file that could not be written hours later.

    Raises ``ConflictError`` where it is a folder, ``MissingError`` where its folder is not there.
    """
    if path.is_dir():
        raise ConflictError(f"{path} is a folder", "name a file in it")
    if not path.parent.is_dir():
        raise MissingError(f"{path}: there is no folder {path.parent}", "make it, or check the path")


@dataclass(frozen=True)
class _Style:
    """How predictions are written."""

    bio: bool
    tags: bool
    task: str

    def __post_init__(self) -> None:
        for name in ("bio", "tags"):
            if getattr(self, name) and self.task != "ner":
                raise UsageError(f"--{name} is for NER, the model is for {self.task}", f"leave out --{name}")

    def lines(self, block: "Iterable[Prediction]", *, is_ascii: bool) -> Iterator[str]:
        """The predictions as lines; in a word, what would break a line of BIO becomes a space."""
        for prediction in block:
            if self.bio:
                words, tags = prediction.entry.example.words, prediction.result["tags"]
                yield from (f"{word.translate(_BREAKS)}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
                yield "\n"
                continue
            row = prediction.as_dict()
            if self.tags:
                row["words"] = prediction.entry.example.words
            elif self.task == "ner":
                del row["tags"]
            yield json.dumps(row, ensure_ascii=is_ascii) + "\n"


@contextmanager
def open_output(out: Path | None) -> Iterator[tuple[IO[str], bool]]:
    """Where rows go, and whether it takes only ASCII; a file gets its name once everything is in it."""
    if out is None:
        yield sys.stdout, (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
        return
    import smart_open

    from greenadapt.corpus.reading import COMPRESSIONS

    part = out.with_name(f".{out.name}.part")
    compression = out.suffix.lower() if out.suffix.lower() in COMPRESSIONS else "disable"
    try:
        with smart_open.open(str(part), "w", encoding="utf-8", compression=compression) as stream:
            yield stream, False
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
