"""What a command would do, printed."""

from collections.abc import Iterable

from greenadapt.cli.output.console import print_json, print_text
from greenadapt.cli.output.results import counts_in_words
from greenadapt.stages.plan import UP_TO_DATE, Step
from greenadapt.wording import duration


def print_plan(steps: Iterable[Step], as_json: bool) -> None:
    """The steps, as lines of JSON or as text."""
    if as_json:
        for step in steps:
            print_json(step.as_dict())
    else:
        print_text(line for step in steps for line in _lines(step))


def _lines(step: Step) -> list[str]:
    if step.status == UP_TO_DATE:
        said = f"up to date; {counts_in_words(step.counts)}"
    else:
        more = ["goes on from a killed run"] * step.resumes
        more += [] if step.seconds is None else [f"took {duration(step.seconds)} last time"]
        said = "; ".join([f"would run: {step.why}", *more])
    return [f"{step.stage}: {said}", f"  {step.folder}"]
