"""From shared options to a session, and from results to what is printed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from greenadapt.cli.console import make_progress, print_json, print_lines
from greenadapt.cli.options import parse_bytes
from greenadapt.pipeline import Session, TextOptions
from greenadapt.processes import usable_cores
from greenadapt.store import Result
from greenadapt.workspace import Workspace


def make_session(
    workspace: Path | None,
    *,
    out: Path | None = None,
    variant: str | None = None,
    force: bool = False,
    download: bool = False,
    workers: int | None = None,
    max_memory: str = "4G",
) -> Session:
    """What the stages of one command share."""
    return Session(
        Workspace.find(workspace),
        make_progress(),
        out=out,
        variant=variant,
        force=force,
        download=download,
        workers=workers or usable_cores(),
        max_memory=parse_bytes(max_memory),
    )


def text_options(
    format: str | None,  # noqa: A002  (the option's name)
    field: list[str] | None,
    keep_duplicates: bool | None,
    strict: bool | None,
    heldout: float | None,
) -> TextOptions:
    """How the corpus is read, as far as the user said."""
    return TextOptions(format, tuple(field or ()), keep_duplicates, strict, heldout)


def describe(result: Result) -> dict[str, Any]:
    """A result as JSON: stage, status, folder, counts, facts, cost."""
    manifest = result.manifest
    return {
        "stage": manifest.stage,
        "status": "done" if result.fresh else "up to date",
        "folder": str(result.path),
        "config": manifest.config,
        "counts": manifest.counts,
        "facts": manifest.facts,
        "cost": manifest.cost,
    }


def print_results(results: Iterable[Result], as_json: bool) -> None:
    """The last result as one JSON object (the earlier ones under ``stages``), or a line a result."""
    results = list(results)
    if as_json:
        last = describe(results[-1])
        if len(results) > 1:
            last["stages"] = [describe(result) for result in results[:-1]]
        print_json(last)
        return
    print_lines(_line(result) for result in results)


def _line(result: Result) -> str:
    manifest = result.manifest
    counts = ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in manifest.counts.items())
    seconds = manifest.cost.get("seconds", 0.0)
    status = f"done in {seconds:.1f} s" if result.fresh else "up to date"
    return f"{manifest.stage}: {status}; {counts}\n  {result.path}"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
