"""``greenadapt clean``."""

import sys
from typing import Annotated

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, examples, option
from greenadapt.config import SessionOptions
from greenadapt.errors import UsageError

Yes = Annotated[bool, option("--yes -y", "Do not ask.")]


@app.command(epilog=examples("clean", "clean --yes"))
def clean(
    *, yes: Yes = False, options: Annotated[SessionOptions, Pick("workspace")], as_json: o.AsJson = False
) -> None:
    """Remove what no named result needs, after asking.

    The newest results of each corpus and model have names, see greenadapt status; they stay, and so does what they were
    made from. Removed are older results, unfinished results that no command works on, stored inputs that no kept
    result was made from, and finished folds of assess. All of this is in the workspace; nothing elsewhere is removed. A
    model elsewhere, such as in runs, does not keep the results that it was made from.
    """
    from greenadapt.cli.output.printing import print_cleaning, print_removed
    from greenadapt.stages import status as stage
    from greenadapt.store.workspace import find_unneeded

    session = o.make_session(options)
    items = [*find_unneeded(session.workspace)]
    rows = [stage.clean_row(item, "removable") for item in items]
    if rows and not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError("clean asks before it removes, which needs a terminal and no --json", "add --yes")
        print_cleaning(rows)
        sys.stderr.write("Remove them? [y/N]: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            session.progress.note("nothing was removed")
            return
    print_removed([*stage.clean(session, items)], as_json)
