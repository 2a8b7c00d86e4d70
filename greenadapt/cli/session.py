"""From shared options to a session, and from results to what is printed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from greenadapt.cli.console import is_quiet, make_progress, print_json, print_text
from greenadapt.cli.options import parse_bytes
from greenadapt.config import TextLimits
from greenadapt.errors import UsageError
from greenadapt.pipeline import Session, TextOptions
from greenadapt.processes import usable_cores
from greenadapt.report.map_quality import r2
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
    """What the stages of one command share; raises ``UsageError`` for no workers at all."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}, must be at least 1")
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
    max_document_bytes: str | None,
    max_word_chars: int | None,
) -> TextOptions:
    """How the corpus is read, as far as the user said."""
    longest = None if max_document_bytes is None else parse_bytes(max_document_bytes, "--max-document-bytes")
    if max_word_chars is not None:
        TextLimits(max_word_chars=max_word_chars)
    return TextOptions(
        format,
        tuple(field or ()),
        keep_duplicates,
        strict,
        heldout,
        max_document_bytes=longest,
        max_word_chars=max_word_chars,
    )


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
    """The last result as one JSON object (the earlier ones under ``stages``), or a few lines about each;
    under ``--quiet`` none.
    """
    results = list(results)
    if as_json:
        last = describe(results[-1])
        if len(results) > 1:
            last["stages"] = [describe(result) for result in results[:-1]]
        print_json(last)
        return
    if not is_quiet():
        print_text(line for result in results for line in _lines(result))


def _lines(result: Result) -> list[str]:
    manifest = result.manifest
    known = {name.replace("_", " "): value for name, value in manifest.counts.items() if value is not None}
    counts = ", ".join(f"{name} {_number(value)}" for name, value in known.items())
    seconds = manifest.cost.get("seconds", 0.0)
    status = f"done in {seconds:.1f} s" if result.fresh else "up to date"
    heldout = (manifest.facts.get("heldout") or {}).get("figures")
    quality = [_quality(heldout)] if heldout else []
    return [f"{manifest.stage}: {status}; {counts}", *quality, f"  {result.path}"]


def _quality(figures: dict[str, Any]) -> str:
    """How good a map is, in one line."""
    found = figures["base_rows"]["cosine"]
    return (
        f"  on {figures['n_heldout']:,} held-out words: {r2(figures)}, cosine {figures['cosine']:.3f}, "
        f"own row first for {found['precision_at_1']:.1%}, among ten for {found['precision_at_10']:.1%}"
    )


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
