"""Scores as they are printed."""

from collections.abc import Sequence
from typing import Any

from greenadapt.cli.console import print_table, print_text
from greenadapt.report.multitask_tables import task_score_tables
from greenadapt.report.score_tables import Table, figure, score_tables, signed

Json = dict[str, Any]


def print_scores(scores: Json) -> None:
    """The scores of a fine-tuned model (its ``scores.json``): each seed, their mean and deviation, and by part."""
    _print_tables(score_tables(scores), if_none="give --test or --dev")


def print_evaluated(scores: Json) -> None:
    """The same of one labelled file (see ``Evaluated``), and how sure the main score is."""
    _print_tables(score_tables(scores, scores["file"]), if_none="")
    intervals, n_seeds = scores["intervals"], len(scores["seeds"])
    # A model without added words has one view, whatever the pool.
    ends = intervals.get(scores["pool"], intervals.get("base") if len(intervals) == 1 else None)
    if ends is None:
        return
    main, (low, high) = scores["main"], map(figure, ends)
    drawn = f"{scores['examples']:,} examples" if scores["resampled"] == "examples" else "whole contexts"
    drawn += f" and {n_seeds} seeds" if n_seeds > 1 else ""
    of = "mean " if n_seeds > 1 else ""
    print_text([f"{of}{main} {figure(scores['mean'][main])}, 95 % interval {low} to {high}, by resampling {drawn}", ""])


def print_task_scores(scores: Json) -> None:
    """The scores of a model of many tasks (its ``scores.json``): of every set, and their average."""
    _print_tables(task_score_tables(scores), if_none="give the tasks test or dev files")


def print_comparison(rows: Sequence[Json]) -> None:
    """The first model's score, those of the others, the first one's difference to each and how sure it is.

    A row has ``model``, ``score``, ``std`` (``None`` for one seed), all but the first also ``difference``, ``low`` and
    ``high``; of three, the first has ``gap_covered``.
    """
    ours = rows[0]["model"]
    table = [
        [row["model"], figure(row["score"]), figure(row["std"]), signed(row.get("difference")), _interval(row)]
        for row in rows
    ]
    columns = ["model", "score", "std", f"{ours} less it", "95 % interval"]
    print_table("Comparison on the test set, in percent", columns, table)
    print_text([*(_in_words(ours, row) for row in rows[1:]), *_gap(rows), ""])


def _print_tables(tables: Sequence[Table], if_none: str) -> None:
    if not tables:
        print_text([f"nothing was scored: {if_none}", ""])
    for table in tables:
        print_table(table.title, table.columns, table.rows)


def _interval(row: Json) -> str:
    return f"{signed(row['low'])} to {signed(row['high'])}" if "low" in row else ""


def _in_words(model: str, row: Json) -> str:
    difference, other = row["difference"], row["model"]
    if row["low"] <= 0 <= row["high"]:
        return (
            f"{model} less {other}: {signed(difference)} points, but the interval holds zero: "
            "these examples and seeds do not show which is better"
        )
    better = "better" if difference > 0 else "worse"
    return f"{model} is {better} than {other} by {figure(abs(difference))} points"


def _gap(rows: Sequence[Json]) -> list[str]:
    if "gap_covered" not in rows[0]:
        return []
    ours, base, reference = (row["model"] for row in rows)
    covered = rows[0]["gap_covered"]
    if covered is None:
        return [f"{reference} is not better than {base}: there is no gap to cover"]
    return [f"{ours} covers {covered:.0%} of the gap from {base} to {reference}"]
