"""``greenadapt qa``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli.options import shared as o
from greenadapt.cli.options.inference import MaxTokens, PoolOption, PrecisionOption, Seed
from greenadapt.cli.options.memory import MovedMemory
from greenadapt.config import QaConfig, WordUnit
from greenadapt.config import RunConfig as Run
from greenadapt.config import TrainConfig as Train
from greenadapt.errors import UsageError
from greenadapt.storage.files import Json
from greenadapt.storage.outputs import check_file, open_output

if TYPE_CHECKING:
    from greenadapt.inference.qa.answering import QaRequest
    from greenadapt.storage.results import Result


_ASKED, _CHOSEN = "What is asked", "Which answers are told"


QaModel = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="What finetune --task qa wrote, or any extractive question answering model, adapted or "
        "not: a folder or a hub id.", show_default=False,
    ),
]  # fmt: skip


Data = Annotated[
    str | None,
    typer.Option("--data", help="Questions with their contexts: SQuAD's JSON, JSON lines, a CSV, a hub data set; "
                 "scored where they have answers.", show_default=False, rich_help_panel=_ASKED),
]  # fmt: skip


Context = Annotated[
    str | None,
    typer.Option("--context", help="One document: a file of text or of a corpus format; - is standard input.",
                 show_default=False, rich_help_panel=_ASKED),
]  # fmt: skip


Documents = Annotated[
    list[str] | None,
    typer.Option("--documents", help="Documents: a folder, a file or an archive, read as the corpus commands do; may "
                 "be repeated.", show_default=False, rich_help_panel=_ASKED),
]  # fmt: skip


QuestionText = Annotated[
    list[str] | None,
    typer.Option("--question", "-q", help="A question on the documents; may be repeated.", show_default=False,
                 rich_help_panel=_ASKED),
]  # fmt: skip


Questions = Annotated[
    str | None,
    typer.Option("--questions", help="Questions on the documents: JSON lines with question and perhaps id, or text, a "
                 "question a line.", show_default=False, rich_help_panel=_ASKED),
]  # fmt: skip


Format = Annotated[
    str | None,
    typer.Option("--format", help="Format of the documents, where their names do not say it.", show_default=False,
                 rich_help_panel=_ASKED),
]  # fmt: skip


Field = Annotated[
    list[str] | None,
    typer.Option("--field", help="Field (JSON lines) or column (CSV, TSV) of the documents that holds text [default: "
                 "text]; may be repeated.", show_default=False, rich_help_panel=_ASKED),
]  # fmt: skip


Top = Annotated[int, typer.Option("--top", help="How many answers to each question are told.", rich_help_panel=_CHOSEN)]


NBest = Annotated[
    int, typer.Option("--n-best", help="How many spans share the probability.", rich_help_panel=_CHOSEN)
]  # fmt: skip


WordUnitOption = Annotated[
    WordUnit | None,
    typer.Option("--word-unit", help="An answer begins and ends at white space, or also at punctuation [default: as "
                 "trained, else punct].", show_default=False, rich_help_panel=_CHOSEN),
]  # fmt: skip


MaxAnswerChars = Annotated[
    int | None,
    typer.Option("--max-answer-chars", help="Longest answer, in characters [default: as trained, else 500].",
                 show_default=False, rich_help_panel=_CHOSEN),
]  # fmt: skip


NoAnswer = Annotated[
    bool | None,
    typer.Option("--no-answer/--always-answer", help="Whether that there is no answer may be told, as in SQuAD 2 "
                 "[default: as trained, else always answer].", show_default=False, rich_help_panel=_CHOSEN),
]  # fmt: skip


NullThreshold = Annotated[
    float | None,
    typer.Option("--null-threshold", help="By how much the logit that there is no answer must be higher than the best "
                 "answer's [default: as trained, else 0].", show_default=False, rich_help_panel=_CHOSEN),
]  # fmt: skip


MaxLength = Annotated[
    int | None,
    typer.Option("--max-length", help="Pieces of a window [default: as trained, else all the model can read].",
                 show_default=False),
]  # fmt: skip


Compare = Annotated[
    str | None,
    typer.Option("--compare", help="The model before it was adapted: shows its answers and scores beside those of "
                 "either tokenization and of both.", show_default=False),
]  # fmt: skip


TaskOption = Annotated[
    str | None,
    typer.Option("--task", help="Which task answers, of a model of several.", show_default=False),
]


OutFolder = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write answers.jsonl and scores.json into this folder; killed, the same command "
                 "goes on from the last question.", show_default=False),
]  # fmt: skip


Predictions = Annotated[
    Path | None,
    typer.Option("--predictions", help="Also write one JSON object, id: answer, as SQuAD's scorer reads.",
                 show_default=False),
]  # fmt: skip


NullOdds = Annotated[
    Path | None,
    typer.Option("--null-odds", help="Also write one JSON object, id: logit of no answer less that of the best answer, "
                 "as the scorer of SQuAD 2 reads.", show_default=False),
]  # fmt: skip


@app.command()
def qa(
    model: QaModel,
    data: Data = None,
    context: Context = None,
    documents: Documents = None,
    question: QuestionText = None,
    questions: Questions = None,
    format: Format = None,  # noqa: A002  (the option's name)
    field: Field = None,
    top: Top = QaConfig.top,
    n_best: NBest = QaConfig.n_best,
    word_unit: WordUnitOption = None,
    max_answer_chars: MaxAnswerChars = None,
    no_answer: NoAnswer = None,
    null_threshold: NullThreshold = None,
    pool: PoolOption = None,
    seed: Seed = None,
    precision: PrecisionOption = Train.precision,
    max_tokens: MaxTokens = Run.max_tokens,
    max_length: MaxLength = None,
    memory: MovedMemory = None,
    task: TaskOption = None,
    compare: Compare = None,
    out: OutFolder = None,
    predictions: Predictions = None,
    null_odds: NullOdds = None,
    force: o.Force = False,
    as_json: o.AsJson = False,
) -> None:
    """Answer questions in whole documents, read in windows, averaging both tokenizations word by word.

    Writes JSON lines, a question a line, and after them one with the scores where there are gold answers; on a terminal
    without --json, each answer in its sentence. With --out the answers are in the folder, and the scores are printed.
    """
    if context is not None and documents:
        raise UsageError("--context and --documents exclude each other", "give all files with --documents")
    if data is not None and (format or field):
        raise UsageError("--format and --field are about documents, and there is --data", "leave them out")
    if out is None and force:
        raise UsageError("--force replaces a result, and nothing is kept without --out", "leave it out")

    from greenadapt.cli.output.console import say_loading

    say_loading([model])

    from greenadapt.inference.opened_models import ReadingOptions
    from greenadapt.inference.qa.answering import QaRequest
    from greenadapt.inference.qa.inquiry import InquirySources
    from greenadapt.stages.qa import answer, read_rows

    sources = InquirySources(
        data=data,
        documents=tuple(documents or ([context] if context is not None else [])),
        questions=questions,
        asked=tuple(question or ()),
        format=format,
        fields=tuple(field or InquirySources.fields),
        single=context is not None,
    )
    config = QaConfig(top, n_best, word_unit, max_answer_chars, no_answer, null_threshold)
    reading = ReadingOptions(pool, seed, precision, max_tokens, max_length, memory)
    request = QaRequest(model, sources, config, reading, compare, null_odds is not None, task)
    scorer = _ForScorer(predictions, null_odds)
    scorer.check(sources.paths())
    if out is None:
        _tell(request, scorer, is_read=sys.stdout.isatty() and not as_json)
        return

    from greenadapt.cli.options.session import make_session

    result = answer(make_session(None, out=out, force=force), request)
    for row in read_rows(result):
        scorer.add(row)
    scorer.write()
    _print_result(result, as_json=as_json)


def _tell(request: "QaRequest", scorer: "_ForScorer", *, is_read: bool) -> None:
    """Answer and print, question by question."""
    from greenadapt.cli.output.answers import print_summary, print_view
    from greenadapt.cli.output.console import make_progress, print_json
    from greenadapt.inference.qa.answering import Answering

    answering = Answering(request, make_progress(is_read=is_read))
    for row in answering.rows():
        (print_view if is_read else print_json)(row)
        scorer.add(row)
    scorer.write()
    summary = answering.summary()
    if is_read:
        print_summary(summary)
    elif summary:
        print_json(summary)


def _print_result(result: "Result", *, as_json: bool) -> None:
    from greenadapt.cli.output.answers import print_summary
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.results import describe, print_results
    from greenadapt.stages.qa import read_summary

    summary = read_summary(result)
    if as_json:
        print_json({**describe(result), **summary})
        return
    print_summary(summary)
    print_results([result], as_json=False)


class _ForScorer:
    """What SQuAD's scorer reads, by the id of the question, for the files that are wanted."""

    def __init__(self, predictions: Path | None, null_odds: Path | None) -> None:
        self._files = predictions, null_odds
        self._answers: dict[str, str] = {}
        self._odds: dict[str, float] = {}

    def check(self, read: list[str]) -> None:
        """Refuse what could not be written hours later, and files that are among those that are ``read``."""
        taken = {Path(path).resolve() for path in read}
        for path in self._files:
            if path is None:
                continue
            check_file(path)
            if path.resolve() in taken:
                raise UsageError(f"{path} is given twice", "name another file")
            taken.add(path.resolve())

    def add(self, row: Json) -> None:
        """Note an answer."""
        predictions, null_odds = self._files
        if predictions is not None:
            self._answers[row["id"]] = row["answer"]
        if null_odds is not None:
            sure = sys.float_info.max  # nothing else is possible, and the scorer needs a number
            self._odds[row["id"]] = sure if row["null_odds"] is None else row["null_odds"]

    def write(self) -> None:
        """Write each file whole or not at all."""
        for path, values in zip(self._files, (self._answers, self._odds), strict=True):
            if path is not None:
                with open_output(path) as (stream, is_ascii):
                    stream.write(json.dumps(values, ensure_ascii=is_ascii) + "\n")
