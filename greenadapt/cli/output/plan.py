"""What a command would do, printed."""

from collections.abc import Iterable

from greenadapt.cli.output.console import print_json, print_text
from greenadapt.cli.output.results import counts_in_words
from greenadapt.errors import byte_size, duration
from greenadapt.stages.plan import UP_TO_DATE, Step


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
        said = "; ".join([f"{step.status}: {step.why}", *more])
    return [f"{step.stage}: {said}", *_estimate(step), f"  {step.folder}"]


def _estimate(step: Step) -> list[str]:
    """Bytes, hours and price, and what they are from."""
    parts = [] if not step.bytes else [byte_size(step.bytes)]
    parts += [] if step.hours is None else [duration(3600 * step.hours)]
    if step.usd_low is not None and step.usd_high is not None:
        parts.append(f"${step.usd_low:,.2f} to {step.usd_high:,.2f}")
    basis = f" ({step.basis})" if parts and step.basis else step.basis
    return [f"  {', '.join(parts)}{basis}"] if parts or basis else []
