"""``greenadapt clean``."""

import sys
from typing import Annotated, Any

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import Pick, basic, examples
from greenadapt.config import SessionOptions
from greenadapt.errors import UsageError
from greenadapt.fields import parse_duration

_KINDS = ("version", "unfinished", "download", "input", "cache")

Only = Annotated[
    list[str] | None,
    basic(
        "--only", f"Only this kind: {', '.join(_KINDS[:-1])} or {_KINDS[-1]}; repeatable [default: all but unfinished]."
    ),
]
OlderThan = Annotated[
    str | None, basic("--older-than", "Only what was not changed for this long, such as 12h, 30d or 4w.")
]
DryRun = Annotated[bool, basic("--dry-run", "List what would be removed, and remove nothing.")]
Yes = Annotated[bool, basic("--yes -y", "Do not ask.")]


@app.command(epilog=examples("clean --dry-run", "clean --older-than 30d --yes", "clean --only cache"))
def clean(
    *,
    only: Only = None,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    options: Annotated[SessionOptions, Pick("workspace")],
    as_json: o.AsJson = False,
) -> None:
    """Remove old versions, downloads and caches, after asking.

    Results in the workspace stay, and what they were made from. What another command is writing is skipped. Unfinished
    work, which the same command resumes, is removed only with --only unfinished or --older-than.
    """
    kinds: list[Any] = list(only or ())
    if unknown := [kind for kind in kinds if kind not in _KINDS]:
        raise UsageError(f"--only is {unknown[0]!r}, must be {', '.join(_KINDS[:-1])} or {_KINDS[-1]}")

    from greenadapt.cli.output.printing import print_cleaning, print_removed
    from greenadapt.stages import status as stage

    session = o.make_session(options)
    request = stage.CleanRequest(
        kinds=tuple(kinds),
        older_than=None if older_than is None else parse_duration(older_than, "--older-than"),
    )
    leftovers = [*stage.find(session, request)]
    kept_rows = [stage.row(leftover, "kept", why) for leftover, why in leftovers if why]
    removable = [leftover for leftover, why in leftovers if not why]
    removable_rows = [stage.row(leftover, "removable") for leftover in removable]
    if dry_run or not removable:
        print_cleaning(removable_rows, kept_rows, as_json)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("clean asks before it removes, and there is no terminal", "add --yes, or --dry-run")
        print_cleaning(removable_rows, kept_rows, as_json=False, to_stderr=as_json)
        if not typer.confirm("Remove them?", err=True):
            session.progress.note("nothing was removed")
            return
    removed_rows = [
        stage.row(leftover, "kept" if why else "removed", why)
        for leftover, why in stage.remove(session, request, removable)
    ]
    print_removed([*removed_rows, *kept_rows], as_json)
