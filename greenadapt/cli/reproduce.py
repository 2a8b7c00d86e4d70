"""``greenadapt reproduce``."""

from typing import TYPE_CHECKING, Annotated

import typer

from greenadapt.cli import app, settings
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import NumberOfSeeds, Panel, SessionOptions
from greenadapt.errors import UsageError
from greenadapt.fields import check_value
from greenadapt.storage.files import expanded

if TYPE_CHECKING:
    from greenadapt.stages.reproduce.run import Reproduction

Experiment = Annotated[
    str,
    typer.Argument(
        help="green-ner, green-qa, gmap, pals, or a recipe of your own (.toml).", autocompletion=settings.experiments
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Only this data set; repeatable.", rich_help_panel=Panel.DATA),
]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help="Only this method, as the recipe calls it; repeatable.", rich_help_panel=Panel.DATA),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds", help="Number of models of each cell [default: the paper's].", rich_help_panel=Panel.TRAINING
    ),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="[SET=]FOLDER",
        help="Folder of a data set that you have, or one with a folder for each; repeatable.",
        rich_help_panel=Panel.DATA,
    ),
]
Model = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="[ROLE=]MODEL",
        help="Another model (a folder, a hub id, minilm or mpnet) in a role of the recipe, such as base or reference "
        "[default role: the first]; repeatable.",
        rich_help_panel=Panel.DATA,
    ),
]
Corpus = Annotated[
    list[str] | None,
    typer.Option(
        "--corpus",
        "-c",
        metavar="[ROLE=]CORPUS",
        help="Another corpus in a role of the recipe; repeatable.",
        rich_help_panel=Panel.DATA,
    ),
]
_SESSION = ("workspace", "download", "workers", "max_memory", "dry_run", "max_time", "nice")
_SPREAD = ("cluster", "cores_each", "gpus_each")


@app.command(
    epilog=examples(
        "reproduce green-ner --dry-run",
        "reproduce green-ner --download --only NCBI-disease --seeds 1",
        "reproduce gmap --data classification --cluster auto",
    )
)
def reproduce(
    *,
    experiment: Experiment,
    only: Only = None,
    methods: Methods = None,
    seeds: Seeds = None,
    data: Data = None,
    model: Model = None,
    corpus: Corpus = None,
    options: Annotated[SessionOptions, Pick(*_SESSION, *_SPREAD)],
    as_json: o.AsJson = False,
) -> None:
    """Fill a paper's table with your own runs, beside the published figures.

    Each run is kept when it is finished, and the same command does only those that are missing. Data sets, corpora and
    models that are not there are cells that say so. --dry-run tells sizes, hours and prices.
    """
    check_value("--seeds", seeds, NumberOfSeeds | None)

    from greenadapt.cli.output.console import print_json
    from greenadapt.stages.reproduce.run import ReproduceRequest
    from greenadapt.stages.reproduce.run import reproduce as stage

    folders = {name: expanded(folder) for name, folder in _named("--data", data).items()}
    request = ReproduceRequest(
        experiment,
        tuple(only or ()),
        tuple(methods or ()),
        seeds,
        folders,
        _named("--model", model),
        _named("--corpus", corpus),
    )
    found = stage(o.make_session(options), request)
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)


def _named(option: str, given: list[str] | None) -> dict[str, str]:
    """``NAME=VALUE`` by name; a value without one, also a path with a = in it, by ""."""
    found: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or "/" in name:
            name, value = "", each
        if name in found:
            raise UsageError(
                f"{option} names {found[name]} and {value}{f' for {name}' if name else ''}", "give one of them"
            )
        found[name] = value
    return found


def _print(found: "Reproduction") -> None:
    from greenadapt.cli.output.console import print_table, print_text
    from greenadapt.stages.reproduce.table import HEAD, cells_of, notes_of

    notes = notes_of(found.lines)
    for table in found.recipe.tables:
        rows = [cells_of(line, notes) for line in found.lines if line.table == table.name]
        if rows:
            print_table(f"{found.recipe.paper}, {table.name}, in percent", [*HEAD], rows)
    print_text([f"[{number}] {note}" for number, note in enumerate(notes, 1)])
    print_text(["", *found.remarks, "", f"The table and its sources: {found.folder / 'table.md'}"])
