"""``greenadapt predict``."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from greenadapt.cli import app
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import EnsembleRule, ReadingOptions, SessionOptions, TaskConfig
from greenadapt.errors import InputError, UsageError, harmless, harmless_json

if TYPE_CHECKING:
    from greenadapt.inference.predictor import EntryPrediction


_BREAKS = frozenset("\t\r\n")


Models = Annotated[list[str], option("--model -m", "A folder that finetune wrote; repeat it to average models.")]
Ensemble = Annotated[
    EnsembleRule | None, option("--ensemble", "What to average over several --model [default: logits].")
]
TaskNames = Annotated[
    str | None,
    option(
        "--task", "Which task of a multitask model; separate several with commas, and what they share is computed once."
    ),
]
Input = Annotated[
    str,
    option(
        "--input -i",
        "Text with one entry per line, JSON lines, CSV, TSV, or CoNLL columns; compressed or not; - is standard input.",
    ),
]
Format = Annotated[
    Literal["text", "jsonl", "conll", "squad"] | None,
    option(
        "--format",
        "Format of the input. jsonl: JSON lines or one JSON array; conll, for NER: words in columns, one sentence per "
        "entry [default: by its name: jsonl for .jsonl, .json and .ndjson, but squad for question "
        "answering on .json; conll for NER on .conll, .bio, .iob and .iob2; but for NER, the columns of training on "
        ".csv and .tsv; else text].",
    ),
]
Bio = Annotated[bool, option("--bio", "NER: write one word and its tag per line instead of JSON.")]
Glue = Annotated[bool, option("--glue", "Read a test table of GLUE, and write a submission to its leaderboard.")]
OutFile = Annotated[
    Path | None,
    option(
        "--out -o",
        "Write to this file, once complete, instead of stdout; compressed if it ends in .gz, .bz2, .xz or .zst.",
    ),
]
AsJson = Annotated[bool, option("--json", "Print JSON lines, which is the default.")]


@app.command(
    epilog=examples("predict -m runs/ner -i sentences.txt", "predict -m runs/ner -i notes.jsonl -o entities.jsonl.gz")
)
def predict(
    *,
    model: Models,
    task: TaskNames = None,
    ensemble: Ensemble = None,
    source: Input = "-",
    format: Format = None,  # noqa: A002  (the option's name)
    files: Annotated[TaskConfig, Pick("columns")],
    reading: Annotated[ReadingOptions, Pick(without=("max_length",))],
    options: Annotated[SessionOptions, Pick("cluster", "gpus_each")],
    bio: Bio = False,
    glue: Glue = False,
    out: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """Predict entities, labels or answers with fine-tuned models.

    Prints one JSON object per entry, in the order of the input. Each has its line number and the id of its record, if
    any; NER gives entities with character positions and scores. With several tasks, "tasks" has each one's result by
    name. The input is processed as it arrives, and results are printed as they come. A broken line ends the command
    with exit code 1, after the results before it.
    """
    from greenadapt.cli.output.console import make_progress, say_loading
    from greenadapt.store.outputs import check_file, is_written_through, open_output

    lines = {"--bio": bio, "--glue": glue, "--json": as_json}
    flags = [name for name, is_set in lines.items() if is_set]
    if len(flags) > 1:
        raise UsageError(f"{flags[0]} and {flags[1]} write different lines", "leave out one of them")
    if out is not None:
        check_file(out)
    say_loading(model)

    from greenadapt.cluster import Spread
    from greenadapt.inference.predictor import PredictionRequest, Predictor

    names = () if task is None else tuple(name.strip() for name in task.split(","))
    request = PredictionRequest(tuple(model), source, format, reading, ensemble, names, files.columns, glue)
    predictor, progress = Predictor(request), make_progress(is_read=False)
    spread = Spread.of(options.cluster, options.gpus_each)
    is_seen = out is None or is_written_through(out)
    style = _Style(bio, glue, {name: kind.name for name, kind in predictor.tasks.items()})
    with open_output(out) as (stream, is_ascii):
        head = style.head
        escape: Callable[[str], str] = str
        if stream.isatty():  # words could contain control characters
            escape = harmless if bio or glue else harmless_json
        for block in predictor.predict(progress, spread):
            # Lazily, so that all lines before an entry that cannot be written are written.
            stream.writelines(map(escape, chain(head, style.lines(block, is_ascii=is_ascii))))
            head = []
            if is_seen:
                stream.flush()


@dataclass(frozen=True)
class _Style:
    """The output format of predictions."""

    bio: bool
    glue: bool
    kinds: dict[str, str]
    """Task → ``ner`` and so on."""

    def __post_init__(self) -> None:
        if self.bio and len(self.kinds) > 1:
            raise UsageError(
                f"--bio is for one task, --task has {len(self.kinds)}", "leave out --bio, or name one task"
            )
        if self.bio and "ner" not in self.kinds.values():
            kinds = " and ".join(dict.fromkeys(self.kinds.values()))
            raise UsageError(f"--bio is for NER, the model is for {kinds}", "leave out --bio")

    @property
    def head(self) -> list[str]:
        from greenadapt.inference.entries import GLUE_HEADER

        return [f"{GLUE_HEADER}\n"] if self.glue else []

    def lines(self, block: "Iterable[EntryPrediction]", *, is_ascii: bool) -> Iterator[str]:
        from greenadapt.inference.entries import glue_line

        for prediction in block:
            if self.bio:
                yield from _bio_lines(prediction)
            elif self.glue:
                yield glue_line(prediction.entry.id, prediction.result) + "\n"
            else:
                yield json.dumps(prediction.row(), ensure_ascii=is_ascii) + "\n"


def _bio_lines(prediction: "EntryPrediction") -> Iterator[str]:
    """One word and its tag per line, then an empty line.

    Raises ``InputError`` if a word is empty or has a character that would break its line.
    """
    words, tags = prediction.entry.example.words, prediction.result["tags"]
    for number, word in enumerate(words, start=1):
        if not word or not _BREAKS.isdisjoint(word):
            raise InputError(
                f"{prediction.entry.where}: token {number} is {word!r}, which two columns cannot hold",
                "leave out --bio for JSON lines, or correct the token",
            )
    yield from (f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True))
    yield "\n"
