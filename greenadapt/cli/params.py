"""``greenadapt params``."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from greenadapt.cli import app, option_checks
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, names_of
from greenadapt.config import AdapterConfig

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="A model folder, a hub id, minilm or mpnet; only its configuration is read [default: BERT-base].",
    ),
]
Tasks = Annotated[int, typer.Option("--tasks", help="Number of tasks that share the encoder.")]
_DETAILS = ("size", "heads", "layers", "placement", "form", "top_layers", "own_pooler", "share_projections")


@app.command(epilog=examples("params", "params -m minilm --adapter pals --adapter-size 24 --tasks 3"))
def params(
    ctx: typer.Context,
    *,
    model: Model = None,
    adapter: Annotated[Callable[..., AdapterConfig], Pick("adapter", *_DETAILS, adapter=None)],
    tasks: Tasks = 8,
    as_json: o.AsJson = False,
) -> None:
    """Count the weights that each task adds to a shared encoder, before any training or download.

    Without --adapter it covers every method at the paper's settings.
    """
    from greenadapt.cli.output.console import print_json
    from greenadapt.stages.finetune.tasks import METHODS, count_params

    given = option_checks.explicit_parameters(ctx)
    adapters: Sequence[AdapterConfig] = METHODS
    if "adapter" in given:
        adapters = [adapter()]
    else:
        option_checks.refuse(ctx, names_of(AdapterConfig), "needs an adapter to belong to: add --adapter")
    rows = count_params(model, adapters, tasks)
    if as_json:
        for row in rows:
            print_json(row)
        return
    _print(rows, model or "BERT-base", tasks)


def _print(rows: Sequence[dict[str, Any]], model: str, n_tasks: int) -> None:
    from greenadapt.cli.output.console import print_table, print_text

    of_all = f"of {n_tasks} task{'s' if n_tasks > 1 else ''}"
    columns = ["adapter", "width", "heads", "layers", "weights per task", of_all, "with biases", of_all, "ratio"]
    table = [
        [
            row["adapter"],
            row["size"] or "-",
            row["heads"] or "-",
            _layers(row["layers"]),
            *(f"{row[name]:,}" for name in ("weights", "all_weights", "parameters", "all_parameters")),
            f"{row['ratio']:.4f}",
        ]
        for row in rows
    ]
    print_table(f"{model}: {rows[0]['base_parameters']:,} weights, shared by {n_tasks}", columns, table)
    print_text(
        [
            "Weights are counted without biases and layer norms, as in the paper; the ratio is of all weights, with "
            "biases, to the encoder's own. Heads are not counted.",
            "",
        ]
    )


def _layers(numbers: Sequence[int]) -> str:
    """``1-12``, or every number if some in between are missing."""
    if not numbers:
        return "-"
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))
