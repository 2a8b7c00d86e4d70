"""``greenadapt demo``."""

from typing import Annotated

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import SessionOptions
from greenadapt.errors import as_percent


@app.command(epilog=examples("demo", "demo --workspace trial --workers 2"))
def demo(
    *, options: Annotated[SessionOptions, Pick("workspace", "workers", "force")], as_json: o.AsJson = False
) -> None:
    """Adapt a model offline, and show gains and costs.

    The offline model is adapted to the docstrings of Python packages. With the train extra installed it ends with a
    task: finding code identifiers in docstrings with the base and the adapted model.
    """
    from greenadapt.cli.output.console import print_json, print_lines, print_table
    from greenadapt.cli.output.printing import (
        demo_summary,
        print_comparison,
        print_costs,
        print_heldout,
        print_neighbours,
    )
    from greenadapt.stages.demo import demo as run

    report = run(o.make_session(options))
    if as_json:
        print_json(report.as_dict())
        return
    print_neighbours([row for row in report.neighbours if row.view.startswith("row")], 4)
    pieces, words = report.fertility, report.fertility["words"]
    print_table(
        f"Pieces per word on {words:,} words of held-out documents",
        ["tokenizer", "pieces per word", "split words now kept whole"],
        [
            ["base", f"{pieces['before']:.3f}", ""],
            ["expanded", f"{pieces['after']:.3f}", as_percent(pieces["whole_words"] / max(words, 1))],
        ],
    )
    print_heldout(report.heldout, report.adapted.manifest.facts["rows"]["recipe"])
    if report.task is not None:
        train, test = (f"{report.task['sentences'][part]:,}" for part in ("train", "test"))
        print_lines([f"A task: code identifiers in docstrings, {train} sentences to train on, {test} to test on"])
        print_comparison(report.task["rows"])
    print_costs([{"stage": result.path.name, **result.manifest.cost} for result in report.results])
    folder = report.adapted.path
    print_lines(
        [
            f"Load the adapted model with AutoModel.from_pretrained({str(folder)!r}), and its tokenizer likewise.",
            "",
            *demo_summary(report.task, [result.manifest.cost for result in report.results]),
        ]
    )
