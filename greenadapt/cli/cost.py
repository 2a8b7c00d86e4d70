"""``greenadapt cost``."""

from greenadapt.cli import app
from greenadapt.cli import options as o


@app.command()
def cost(
    corpus: o.Corpus = None,
    model: o.Model = None,
    workspace: o.WorkspaceFolder = None,
    as_json: o.AsJson = False,
) -> None:
    """Show what each stage cost in time, energy, CO2 and money, beside the paper's table."""
    from greenadapt import pipeline
    from greenadapt.cli.console import print_json
    from greenadapt.cli.session import make_session
    from greenadapt.cli.tables import print_costs, print_paper_costs

    rows = pipeline.stage_costs(make_session(workspace), corpus, model)
    if as_json:
        for row in [*rows, *pipeline.paper_costs()]:
            print_json(row)
        return
    print_costs(rows)
    print_paper_costs(pipeline.paper_costs())
