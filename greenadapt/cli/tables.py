"""Tables that more than one command prints."""

from collections.abc import Sequence
from typing import Any

from greenadapt.cli.console import print_lines, print_table
from greenadapt.neighbours import Neighbours

Json = dict[str, Any]


def print_costs(rows: Sequence[Json]) -> None:
    """What stages cost, and their sum."""
    if not rows:
        print_lines(["no results in this workspace yet"])
        return
    names = ("seconds", "cpu_seconds", "energy_kwh", "co2_kg", "usd_low", "usd_high")
    total: Json = {name: sum(row[name] for row in rows) for name in names}
    total |= {"peak_memory_bytes": max(row["peak_memory_bytes"] for row in rows), "stage": "all"}
    table = [
        [
            " ".join(str(row[name]) for name in ("corpus", "model", "stage") if name in row),
            f"{row['seconds']:.1f} s",
            f"{row['cpu_seconds']:.1f} s",
            f"{row['peak_memory_bytes'] / 2**20:,.0f} MB",
            f"{row['energy_kwh'] * 1000:.3g} Wh",
            f"{row['co2_kg'] * 1000:.3g} g",
            f"${row['usd_low']:.4f} to {row['usd_high']:.4f}",
        ]
        for row in [*rows, total]
    ]
    print_table("Cost", ["stage", "time", "CPU time", "peak memory", "energy", "CO2", "cloud price"], table)
    resumed = [str(row["stage"]) for row in rows if row.get("attempt", 1) > 1]
    if resumed:
        print_lines([f"Of {', '.join(resumed)} only the last attempt was measured; earlier ones were killed."])
    sources = dict.fromkeys(row[name] for row in rows for name in ("energy_source", "co2_source"))
    print_lines([f"Energy and CO2: {'; '.join(sources)}", ""])


def print_neighbours(rows: Sequence[Neighbours], top: int) -> None:
    """One table a word: a row a view, a column a neighbour with its cosine."""
    for word in dict.fromkeys(row.word for row in rows):
        views = [row for row in rows if row.word == word]
        table = [[row.view, *(f"{label} {cosine:.2f}" for label, cosine in row.neighbours)] for row in views]
        print_table(word, ["nearest", *map(str, range(1, top + 1))], table)


def print_paper_costs(rows: Sequence[Json]) -> None:
    """The paper's table, computed, with the published figures."""
    table = [
        [
            f"{row['paper']} ({row['size']})",
            row["hardware"],
            f"{row['watts']:,.0f} W",
            f"{row['hours']:,.0f} h",
            f"{row['co2_lbs']:,.1f} lbs ({row['published_co2_lbs']:,})",
            f"${row['usd_low']:,.0f} to {row['usd_high']:,.0f} ({_range(row['published_usd'])})",
        ]
        for row in rows
    ]
    title = "Table 1 of arXiv 2004.03354 by the same formula (published figures in brackets)"
    print_table(title, ["model", "hardware", "power", "time", "CO2", "cloud price"], table)


def _range(numbers: Sequence[int]) -> str:
    return " to ".join(f"{number:,}" for number in numbers)
