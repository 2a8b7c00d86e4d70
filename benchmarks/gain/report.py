"""The table: a column for each domain, means over sets and each set, with intervals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tables import points_with_interval

from gain.arms import BASE, CONTROL
from gain.differences import Compared, compare, over_sets
from gain.runs import VIEWS, statistics
from gain.sets import domain_of
from greenadapt.config import TaskConfig
from greenadapt.report.tables import figure
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json, write_json
from greenadapt.tasks.base import make_task

NOTE = """
Scores (F1 of entities, macro F1 of classes) and differences in points, with the 95 % interval of a bootstrap: over
seeds and examples in a set, and over sets, too, for a mean. Pooled is the mean of both tokenizations; base view and
expanded view are single passes. The control is the mean of two base models that differ in their random seed only: the
cost of two passes. Unseen: entities with a word that the training examples lack, pooled. Seconds are those of a run,
test included.
"""
PIECES, WITHOUT = "pieces-both", "without-vectors"
COMPARISONS: dict[str, tuple[str, str]] = {
    "pooled to base": ("mean", BASE),
    "pooled to control": ("mean", CONTROL),
    "pooled to pieces-both": ("mean", PIECES),
    "pooled to without-vectors": ("mean", WITHOUT),
    "base view to base": ("base", BASE),
    "expanded view to base": ("expanded", BASE),
    "unseen to base": ("mean unseen", BASE),
    "unseen to control": ("mean unseen", CONTROL),
}
"""Title of a column → a view of the arm, and with what it is compared."""
Runs = dict[int, dict[str, Array]]
"""Seed → view → statistics."""


def write_report(records: Sequence[Json], file: Path) -> str:
    """Write the table of these runs to ``file``, and beside it as JSON; returns the text."""
    cells: dict[tuple[str, Any], dict[str, dict[str, list[Json]]]] = {}
    for record in records:
        cell = cells.setdefault((record["model"], record["budget"]), {})
        cell.setdefault(record["set"], {}).setdefault(record["arm"], []).append(record)
    parts, summary = [], []
    for (model, budget), sets in cells.items():
        rows = {name: _set_rows(arms) for name, arms in sets.items()}
        titled = {f"{name}, {_settings(sets[name])}": rows_of_set for name, rows_of_set in rows.items()}
        if len(rows) > 1:
            titled = {f"Mean of {len(rows)} sets": _mean_rows(rows), **titled}
        title = f"{model}, {budget or 'all'} labelled examples"
        parts += [
            f"## {title}\n",
            *_domain_tables(rows),
            *(_table(name, rows_of_set) for name, rows_of_set in titled.items()),
        ]
        summary += [
            {"model": model, "budget": budget, "of": name, "arms": [_plain(row) for row in rows_of_set.values()]}
            for name, rows_of_set in titled.items()
        ]
    text = "\n".join(parts) + NOTE
    file.write_text(text, "utf-8")
    write_json(file.with_suffix(".json"), summary)
    return text


def _domain_tables(by_set: Mapping[str, Mapping[str, Json]]) -> list[str]:
    """For each comparison of pooled scores a table with a column for each domain and one for the mean of all sets."""
    domains: dict[str, dict[str, Mapping[str, Json]]] = {}
    for name, rows in by_set.items():
        domains.setdefault(domain_of(name), {})[name] = rows
    if len(domains) == 1:
        return []
    columns = {f"{domain} ({len(sets)})": _mean_rows(sets) for domain, sets in domains.items()}
    columns[f"mean of {len(by_set)} sets"] = _mean_rows(by_set)
    tables = []
    for title in (title for title in COMPARISONS if title.startswith("pooled")):
        compared_arm = COMPARISONS[title][1]
        arms = [arm for arm, row in _mean_rows(by_set).items() if arm == compared_arm or title in row["compared"]]
        if len(arms) > 1:
            head = [f"### {title}, number of sets in brackets", "", f"| arm | {' | '.join(columns)} |"]
            lines = [_domain_line(arm, title, [column.get(arm) for column in columns.values()]) for arm in arms]
            tables.append("\n".join([*head, "|---" * (len(columns) + 1) + "|", *lines]) + "\n")
    return tables


def _domain_line(arm: str, title: str, rows: Sequence[Json | None]) -> str:
    """The scores of the reference arm, else differences from them."""
    is_compared = arm != COMPARISONS[title][1]
    cells = [
        "" if row is None else _difference(row["compared"].get(title)) if is_compared else figure(row["mean"])
        for row in rows
    ]
    return f"| {arm} | {' | '.join(cells)} |"


def _settings(arms: Mapping[str, Sequence[Json]]) -> str:
    """The steps of all arms, and each rate with the arms that have it."""
    rates: dict[float, list[str]] = {}
    for arm, records in arms.items():
        rates.setdefault(records[0]["settings"]["training"]["learning_rate"], []).append(arm)
    rates_shown = [f"{rate:g}" + (f" ({', '.join(names)})" if len(rates) > 1 else "") for rate, names in rates.items()]
    return f"{next(iter(arms.values()))[0]['steps']} steps at {' and '.join(rates_shown)}"


def _set_rows(arms: Mapping[str, Sequence[Json]]) -> dict[str, Json]:
    """Arm → its row on one set."""
    kind = next(iter(arms.values()))[0]["kind"]
    main_score = make_task(TaskConfig(kind)).main_score
    runs = {arm: {record["seed"]: statistics(record) for record in records} for arm, records in arms.items()}
    rows = {}
    for arm, records in arms.items():
        row: Json = {"arm": arm, "sets": 1, "seeds": len(records)}
        row |= {view: _mean([record["scores"].get(view) for record in records]) for view in VIEWS}
        row["unseen"] = _mean([record["unseen"].get("mean") for record in records])
        row |= {name: _mean([record["cost"][name] for record in records]) for name in ("seconds", "energy_kwh")}
        row["compared"] = {
            title: compared
            for title, (view, compared_arm) in COMPARISONS.items()
            if arm != BASE
            and compared_arm != arm
            and (compared := _compared(runs, arm, view, compared_arm, main_score)) is not None
        }
        rows[arm] = row
    return rows


def _compared(runs: Mapping[str, Runs], arm: str, view: str, compared_arm: str, main_score: Any) -> Compared | None:
    """Compare under the seeds that both arms have; ``None`` if there are none, or the arm has no such view."""
    theirs = runs.get(compared_arm, {})
    theirs_view = "mean unseen" if view.endswith("unseen") else "mean"
    seeds = [seed for seed, views in runs[arm].items() if view in views and seed in theirs]
    if not seeds:
        return None
    ours = np.stack([runs[arm][seed][view] for seed in seeds])
    return compare(ours, np.stack([theirs[seed][theirs_view] for seed in seeds]), main_score)


def _mean_rows(by_set: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Arm → its mean over the sets that have it."""
    rows = {}
    for arm in dict.fromkeys(arm for rows_of_set in by_set.values() for arm in rows_of_set):
        rows_of_arm = [rows_of_set[arm] for rows_of_set in by_set.values() if arm in rows_of_set]
        n_seeds = min(row_of_set["seeds"] for row_of_set in rows_of_arm)
        row: Json = {"arm": arm, "sets": len(rows_of_arm), "seeds": n_seeds}
        row |= {
            name: _mean([row_of_set[name] for row_of_set in rows_of_arm])
            for name in (*VIEWS, "unseen", "seconds", "energy_kwh")
        }
        compared = {
            title: [row_of_set["compared"][title] for row_of_set in rows_of_arm if title in row_of_set["compared"]]
            for title in COMPARISONS
        }
        row["compared"] = {title: over_sets(of_sets) for title, of_sets in compared.items() if of_sets}
        rows[arm] = row
    return rows


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of the numbers that are not ``None``."""
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def _table(title: str, rows: Mapping[str, Json]) -> str:
    head = ["arm", "sets", "seeds", "pooled", "base view", "expanded view", "unseen", *COMPARISONS, "seconds"]
    titles = [title for title in COMPARISONS if any(title in row["compared"] for row in rows.values())]
    head = [name for name in head if name not in COMPARISONS or name in titles]
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows.values():
        cells = [row["arm"], str(row["sets"]), str(row["seeds"])]
        cells += [figure(row[name]) for name in (*VIEWS, "unseen")]
        cells += [_difference(row["compared"].get(name)) for name in titles]
        cells.append(f"{row['seconds']:.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _difference(compared: Compared | None) -> str:
    if compared is None:
        return ""
    shares = compared.as_dict()
    return points_with_interval(shares["difference"], shares["low"], shares["high"])


def _plain(row: Json) -> Json:
    return {**row, "compared": {title: compared.as_dict() for title, compared in row["compared"].items()}}
