"""``greenadapt serve``."""

import importlib.util
from typing import Annotated

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import Panel, ReadingOptions, RetrievalConfig, ServeConfig
from greenadapt.errors import MissingError
from greenadapt.fields import BASIC

Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        "-m",
        help="A folder that finetune or adapt wrote, or a question answering model; repeat it to compare models.",
    ),
]
IndexFolder = Annotated[
    str | None,
    typer.Option(
        "--index",
        help="What index wrote: a question without a text is put to the paragraphs that match it best.",
        rich_help_panel=Panel.SEARCH,
    ),
    BASIC,
]
TaskName = Annotated[
    str | None,
    typer.Option("--task", help="Serve only this task of multitask models [default: all of their tasks]."),
    BASIC,
]
_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


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
    search: o.SearchAddress = None,
    retrieval: RetrievalConfig,
    options: ServeConfig,
    reading: Annotated[ReadingOptions, Pick(without=("max_length",))],
) -> None:
    """Serve models over HTTP, with a web page.

    The page shows entities, labels, answers and neighbours of words. The server listens on this machine only, unless
    --host says otherwise. With a token in GREENADAPT_SERVE_TOKEN, requests have to send it. Ctrl-C or SIGTERM stops it
    with exit code 0.
    """
    if missing := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
        raise MissingError(f"serving needs {', '.join(missing)}, not installed", 'pip install "greenadapt[serve]"')

    location = o.index_place(index, search, "--index")

    from greenadapt.cli.output.console import make_progress
    from greenadapt.server.serving import ServeRequest, serve

    serve(ServeRequest(tuple(model), options, reading, task, location, retrieval), make_progress(is_read=False))
