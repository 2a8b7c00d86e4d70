"""Results of stages, printed."""

from collections.abc import Iterable
from typing import Any

from greenadapt.cli.output.console import print_json, print_text
from greenadapt.cli.output.messages import output
from greenadapt.errors import as_percent
from greenadapt.report.map_quality import MAP, r2
from greenadapt.storage.results import Result


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
    if not output().quiet:
        recipe = (results[-1].manifest.facts.get("rows") or {}).get("recipe", MAP) if results else MAP
        print_text(line for result in results for line in _lines(result, judges_map=recipe == MAP))


def _lines(result: Result, *, judges_map: bool) -> list[str]:
    """``judges_map``: whether no rows of another recipe were made, whose figures would be others."""
    manifest = result.manifest
    seconds = manifest.cost.get("seconds", 0.0)
    status = f"done in {seconds:.1f} s" if result.fresh else "up to date"
    heldout = (manifest.facts.get("heldout") or {}).get("figures")
    quality = [_quality(heldout)] if heldout and judges_map else []
    rows = manifest.facts.get("rows")
    quality += [_recipes(rows)] if isinstance(rows, dict) and rows["heldout"] and not judges_map else []
    return [f"{manifest.stage}: {status}; {counts_in_words(manifest.counts)}", *quality, f"  {result.path}"]


def counts_in_words(counts: dict[str, Any]) -> str:
    """A result's counts in one line: ``words 85,017, dim 384``."""
    known = {name.replace("_", " "): value for name, value in counts.items() if value is not None}
    return ", ".join(f"{name} {_number(value)}" for name, value in known.items())


def _quality(figures: dict[str, Any]) -> str:
    """How good a map is, in one line."""
    found = figures["base_rows"]["cosine"]
    return (
        f"  on {figures['n_heldout']:,} held-out words: {r2(figures)}, cosine {figures['cosine']:.3f}, "
        f"own row first for {as_percent(found['precision_at_1'])}, among ten for {as_percent(found['precision_at_10'])}"
    )


def _recipes(rows: dict[str, Any]) -> str:
    """Which recipe the new rows are, its figures, and those that it was chosen by, in one line."""
    line = f"  rows {rows['recipe']}"
    if figures := rows["heldout"].get(rows["recipe"]):
        found = figures["base_rows"]["cosine"]
        first, ten = found["precision_at_1"], found["precision_at_10"]
        line += f" on {figures['n_heldout']:,} held-out words: own row first for {first:.1%}, among ten for {ten:.1%}"
    cosines = ", ".join(f"{name} {each['cosine']:.3f}" for name, each in rows["heldout"].items())
    return f"{line}; mean cosine with the rows of held-out words: {cosines}"


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
