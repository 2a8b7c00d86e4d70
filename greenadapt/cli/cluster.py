"""``greenadapt cluster``."""

from typing import Annotated

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples
from greenadapt.config import SessionOptions


@app.command(epilog=examples("cluster", "cluster --cluster 10.0.0.5:6379 --json"))
def cluster(*, options: Annotated[SessionOptions, Pick("cluster", cluster="auto")], as_json: o.AsJson = False) -> None:
    """Show the nodes of a Ray cluster, their free cores and GPUs, and the programs that use it.

    Exit code 1 if no cluster is there, or if a node has another version of Python or greenadapt.
    """
    from greenadapt.cli.output.console import print_json
    from greenadapt.cli.output.printing import print_cluster
    from greenadapt.stages.machine import cluster_rows

    rows = cluster_rows(str(options.cluster))
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_cluster(rows)
