"""``greenadapt qa``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import Panel, QaConfig, ReadingOptions, RetrievalConfig, SessionOptions, TextOptions
from greenadapt.errors import UsageError

Model = Annotated[
    str,
    option(
        "--model -m", "A folder that finetune --task qa wrote, or any extractive question answering model (a hub id)."
    ),
]
Data = Annotated[
    str | None,
    option(
        "--data",
        "Questions with contexts: SQuAD's JSON, JSON lines, CSV, or a hub data set; scored if they have answers.",
        Panel.QUESTIONS,
    ),
]
Context = Annotated[
    str | None,
    option("--context", "One document: a file of text or of a corpus format; - is standard input.", Panel.QUESTIONS),
]
Documents = Annotated[
    list[str] | None,
    option(
        "--documents", "Documents: a folder, a file or an archive, in any corpus format; repeatable.", Panel.QUESTIONS
    ),
]
IndexFolder = Annotated[
    str | None,
    option("--index", "A folder that index wrote: the paragraphs that match a question best are read.", Panel.SEARCH),
]
QuestionText = Annotated[
    list[str] | None, option("--question -q", "A question about the documents; repeatable.", Panel.QUESTIONS)
]
Questions = Annotated[
    str | None,
    option(
        "--questions",
        "File of questions about the documents: JSON lines with question and optional id, or text with one per line.",
        Panel.QUESTIONS,
    ),
]
Compare = Annotated[
    str | None,
    option(
        "--compare",
        "The model before adaptation, whose answers and scores are printed beside those of each tokenization.",
    ),
]
TaskOption = Annotated[str | None, option("--task", "Which task of a multitask model answers.")]
OutFolder = Annotated[
    Path | None, option("--out -o", "Write answers.jsonl and scores.json to this folder.", Panel.OUTPUT)
]


@app.command(
    epilog=examples(
        'qa -m runs/qa-minilm-squad --context paper.txt -q "Which dose was given?"',
        "qa -m runs/qa-minilm-squad --data dev.json -o answers",
        'qa -m runs/qa-minilm-squad --index papers.index -q "Which dose was given?"',
    )
)
def qa(
    ctx: typer.Context,
    *,
    model: Model,
    data: Data = None,
    context: Context = None,
    documents: Documents = None,
    index: IndexFolder = None,
    question: QuestionText = None,
    questions: Questions = None,
    read: Annotated[TextOptions, Pick("format", "fields", "sample_by")],
    config: QaConfig,
    retrieval: RetrievalConfig,
    reading: ReadingOptions,
    task: TaskOption = None,
    compare: Compare = None,
    out: OutFolder = None,
    options: Annotated[SessionOptions, Pick("cluster", "gpus_each")],
    as_json: o.AsJson = False,
) -> None:
    """Answer questions about whole documents.

    The model reads them in windows, and the answers of both tokenizations are averaged word by word. Writes one JSON
    object per question, and at the end one with the scores if there are gold answers; on a terminal without --json,
    each answer in its sentence. With --out the answers are in the folder, and the scores are printed.
    """
    if context is not None and documents:
        raise UsageError("--context and --documents exclude each other", "give all files with --documents")
    if index is None and data is None:
        option_checks.refuse_field(ctx, [context, *(documents or ())], read.format)
    else:
        source = "--data" if index is None else "an index"
        option_checks.refuse(ctx, ["format", "field", "sample_by"], f"is for documents, not for {source}: leave it out")
        read = TextOptions()

    from greenadapt.cli.output.console import make_progress, print_json, say_loading

    say_loading([model])

    from greenadapt.checkpoints.layout import SCORES, read_described
    from greenadapt.cli.output.printing import describe, print_answers, print_results, print_summary
    from greenadapt.cluster import ClusterPool
    from greenadapt.inference.qa.answering import Answerer, QaRequest
    from greenadapt.inference.qa.question_set import QuestionSources
    from greenadapt.stages.qa import answer

    sources = QuestionSources(
        data=data,
        documents=tuple(documents or ([context] if context is not None else [])),
        questions=questions,
        question_texts=tuple(question or ()),
        format=read.format,
        fields=read.fields or QuestionSources.fields,
        sample_by=read.sample_by or (None if context is None else "document"),
        single=context is not None,
        index=index,
    )
    request = QaRequest(model, sources, config, reading, compare, task, retrieval)
    if out is not None:
        result = answer(o.make_session(options, out=out), request)
        summary = read_described(result.folder / SCORES)
        if as_json:
            print_json({**describe(result), **summary})
            return
        print_summary(summary)
        print_results([result], as_json=False)
        return
    is_read = sys.stdout.isatty() and not as_json
    cluster = ClusterPool(options.cluster, options.gpus_each) if options.cluster else None
    answerer = Answerer(request, make_progress(is_read=is_read), cluster)
    for row in answerer.rows():
        (print_answers if is_read else print_json)(row)
    summary = answerer.summary()
    if is_read:
        print_summary(summary)
    elif summary:
        print_json(summary)
