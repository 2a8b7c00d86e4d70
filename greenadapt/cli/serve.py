"""``greenadapt serve``."""

from typing import Annotated

from greenadapt.cli import app
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import Panel, ReadingOptions, RetrievalConfig, ServeConfig
from greenadapt.errors import require

Models = Annotated[
    list[str], option("--model -m", "A folder that finetune wrote, or a question answering model; repeatable.")
]
IndexFolder = Annotated[
    str | None,
    option(
        "--index",
        "A folder that index wrote: a question without a text is answered from the paragraphs that match it best.",
        Panel.SEARCH,
    ),
]
TaskName = Annotated[
    str | None, option("--task", "Serve only this task of multitask models [default: all of their tasks].")
]


@app.command(
    epilog=examples(
        "serve -m runs/ner",
        "serve -m runs/ner -m runs/ner-minilm",
        "serve -m runs/qa-minilm-squad --index papers.index",
    )
)
def serve(
    *,
    model: Models,
    task: TaskName = None,
    index: IndexFolder = None,
    retrieval: RetrievalConfig,
    options: ServeConfig,
    reading: Annotated[ReadingOptions, Pick(without=("max_length",))],
) -> None:
    """Serve models over HTTP, with a web page.

    The page shows entities, labels and answers. The server listens on this machine only, unless
    --host says otherwise. With a token in GREENADAPT_SERVE_TOKEN, requests have to send it. Ctrl-C or SIGTERM stops it
    with exit code 0.
    """
    require("serve", "fastapi", "uvicorn", by="serving")

    from greenadapt.cli.output.console import make_progress
    from greenadapt.server.serving import ServeRequest, serve

    serve(ServeRequest(tuple(model), options, reading, task, index, retrieval), make_progress(is_read=False))
