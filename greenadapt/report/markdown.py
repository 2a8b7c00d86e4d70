"""What the READMEs of all kinds of models have in common."""

from pathlib import Path
from typing import Any

from greenadapt.report.score_tables import Table

Json = dict[str, Any]


def short(source: str) -> str:
    """A file or folder by its name alone, as its path says something about its owner; an id of a hub as it is."""
    return Path(source).name if "://" in source or Path(source).expanduser().exists() else source


def section(table: Table, n_left: int = 1) -> str:
    """A heading and a table, of whose columns the first ``n_left`` hold text, the others numbers."""
    lines = [table.columns, ["---"] * n_left + ["---:"] * (len(table.columns) - n_left), *table.rows]
    drawn = "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)
    return f"\n## {table.title[:1].upper()}{table.title[1:]}\n\n{drawn}\n"


def spent(cost: Json) -> str:
    """What a ``Cost``, as JSON, took: its seconds, its energy in watt-hours, and where that is from."""
    return f"{cost['seconds']:,.0f} seconds, {1000 * cost['energy_kwh']:.3g} Wh ({cost['energy_source']})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
