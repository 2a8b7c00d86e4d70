"""``--dry-run``: a command prints its steps instead of its results."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

from greenadapt.cli.options.command_line import PLAN
from greenadapt.cli.output.plan import print_plan
from greenadapt.stages.plan import DryRun, Plan
from greenadapt.workers import launched_processes


@contextmanager
def steps_printed(as_json: bool) -> Iterator[None]:
    """Run the block's command dry, and print its steps in place of what it prints."""
    plan = Plan()
    token = PLAN.set(plan)
    try:
        with redirect_stdout(io.StringIO()), suppress(DryRun):
            yield
    finally:
        PLAN.reset(token)
    if launched_processes()[0] == 0:  # of several, the first process prints
        print_plan(plan.steps, as_json)
