"""``greenadapt predict``."""

import json
from collections.abc import Callable, Sequence
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from greenadapt.cli import app
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import Count, EnsembleRule, ReadingOptions, SessionOptions, TaskConfig
from greenadapt.errors import InputError, UsageError, harmless, harmless_json

if TYPE_CHECKING:
    from greenadapt.inference.predictor import EntryPrediction
    from greenadapt.tasks.base import Task


_BREAKS = frozenset("\t\r\n")


Models = Annotated[list[str], option("--model -m", "A folder that finetune wrote; repeat it to average models.")]
Ensemble = Annotated[
    EnsembleRule | None, option("--ensemble", "What to average over several --model [default: logits].")
]
TaskNames = Annotated[
    str | None,
    option(
        "--task", "Which task of a multitask model, or several, separated by commas: their encoder runs once for all."
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
    Literal["text", "jsonl", "conll"] | None,
    option(
        "--format",
        "Format of the input: text; jsonl, JSON lines or one JSON array; for NER conll, words in columns [default: by "
        "its name: jsonl for .jsonl, .json and .ndjson; with NER conll for .conll, .bio, .iob and .iob2; with other "
        "tasks .csv and .tsv are read as in training; else text].",
    ),
]
Bio = Annotated[bool, option("--bio", "NER: write one word and its tag per line instead of JSON.")]
Spans = Annotated[
    bool,
    option("--spans", "NER: write JSON lines for doccano: the text, and as label its entities [start, end, type]."),
]
NoText = Annotated[bool, option("--no-text", "Leave the text of each entry out of the JSON lines.")]
LeastCertain = Annotated[
    Count | None,
    option(
        "--least-certain",
        "Write only this many entries, the lowest scores first, to be corrected by hand.",
        metavar="<int>",
    ),
]
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
    spans: Spans = False,
    no_text: NoText = False,
    least_certain: LeastCertain = None,
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

    if bio + spans + (as_json or no_text) > 1:
        raise UsageError("--bio, --spans and --json (--no-text) write different lines", "leave out all but one")
    if out is not None:
        check_file(out)
    say_loading(model)

    from greenadapt.cluster import ClusterPool
    from greenadapt.inference.predictor import PredictionRequest, Predictor

    names = () if task is None else tuple(dict.fromkeys(name.strip() for name in task.split(",")))
    request = PredictionRequest(tuple(model), source, format, reading, ensemble, names, files.columns)
    predictor, progress = Predictor(request), make_progress(is_read=False)
    if bio or spans:
        _require_ner([kind.name for kind in predictor.tasks.values()], "--bio" if bio else "--spans")
    if least_certain is not None:
        _check_scored([*predictor.tasks.values()])
    cluster = ClusterPool(options.cluster, options.gpus_each) if options.cluster else None
    is_seen = out is None or is_written_through(out)
    with open_output(out) as (stream, is_ascii):
        escape: Callable[[str], str] = str
        if stream.isatty():  # words could contain control characters
            escape = harmless if bio else harmless_json
        blocks = predictor.predict(progress, cluster)
        if least_certain is not None:
            blocks = iter([nsmallest(least_certain, chain.from_iterable(blocks), lambda entry: entry.result["score"])])
        for block in blocks:
            # Lazily, so that all lines before an entry that cannot be written are written.
            for prediction in block:
                row = _as_spans(prediction) if spans else prediction.row(text=not no_text)
                lines = _format_columns(prediction) if bio else json.dumps(row, ensure_ascii=is_ascii) + "\n"
                stream.write(escape(lines))
            if is_seen:
                stream.flush()


def _check_scored(tasks: Sequence["Task[Any]"]) -> None:
    """Raise ``UsageError`` unless there is one task, whose predictions have scores."""
    if len(tasks) > 1:
        raise UsageError(f"--least-certain is for one task, --task has {len(tasks)}", "name one task")
    if tasks[0].head_config().get("problem_type") == "regression":
        raise UsageError("predicted numbers have no score", "leave out --least-certain")


def _require_ner(kinds: Sequence[str], flag: str) -> None:
    """Raise ``UsageError`` unless there is one task, and it is NER."""
    if len(kinds) > 1:
        raise UsageError(f"{flag} is for one task, --task has {len(kinds)}", f"leave out {flag}, or name one task")
    if kinds[0] != "ner":
        raise UsageError(f"{flag} is for NER, the model is for {kinds[0]}", f"leave out {flag}")


def _as_spans(prediction: "EntryPrediction") -> dict[str, Any]:
    row = prediction.row()
    label = [[entity["start"], entity["end"], entity["type"]] for entity in row.pop("entities")]
    return {name: row[name] for name in ("id", "text") if name in row} | {"label": label}


def _format_columns(prediction: "EntryPrediction") -> str:
    """One word and its tag per line, then an empty line.

    Raises ``InputError`` if a word is empty or has a character that would break its line.
    """
    words, tags = prediction.entry.example.words, prediction.result["tags"]
    for number, word in enumerate(words, start=1):
        if not word or not _BREAKS.isdisjoint(word):
            raise InputError(
                f"{prediction.entry.where}: token {number} is {word!r}, which would break its line",
                "leave out --bio for JSON lines, or correct the token",
            )
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"
