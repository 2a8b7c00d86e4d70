"""The paper's tables with our figures beside the published ones, as rows, text and Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from greenadapt.errors import rounded
from greenadapt.stages.reproduce.recipe import Column, Recipe, Row, Table
from greenadapt.storage.files import Json
from greenadapt.tasks.metrics import gap_covered, metric_of

Cell = tuple[str, str, str]
HEAD = ("set", "model", "published", "ours", "difference", "seeds", "missing")
_GREEN, _BASE, _REFERENCE = "green", "base", "reference"


@dataclass(frozen=True)
class Found:
    """What is known of all cells: the records of their seeds, and why others have none."""

    records: Mapping[Cell, Sequence[Json]]
    reasons: Mapping[Cell, str]
    n_seeds: int


@dataclass(frozen=True)
class Line:
    """A cell of a table. Figures are in points, deviations are those of the seeds."""

    table: str
    set: str
    """The column's name."""
    model: str
    """The row's name."""
    method: str
    score: str
    published: float | None
    published_std: float | None
    ours: float | None
    std: float | None
    difference: float | None
    """Ours less the published figure."""
    seeds: int
    wanted: int
    """Seeds."""
    missing: str
    """Why there are fewer; empty if there are not."""


def lines_of(recipe: Recipe, found: Found, methods: Sequence[str], sets: Sequence[str]) -> list[Line]:
    """The cells of these methods and sets, table by table and set by set."""
    return [
        _line(table, column, row, number, found)
        for table in recipe.tables
        for number, column, row in table.cells()
        if column.set in sets and row.method in methods
    ]


def _line(table: Table, column: Column, row: Row, number: int, found: Found) -> Line:
    cell = (column.set, row.method, column.variant)
    records = found.records.get(cell, ())
    scores = [100 * score for one in records if (score := metric_of(one["scores"], column.score)) is not None]
    ours = float(np.mean(scores)) if scores else None
    published = row.published[number]
    wanted = 0 if row.why else found.n_seeds
    why = row.why or found.reasons.get(cell, "not run yet")
    if records and not scores:
        why = f"{column.score} has no value on this test set"
    return Line(
        table=table.name,
        set=column.name,
        model=row.name,
        method=row.method,
        score=column.score,
        published=published,
        published_std=row.std[number],
        ours=ours,
        std=float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        difference=None if ours is None or published is None else ours - published,
        seeds=len(scores),
        wanted=wanted,
        missing=why if not scores or len(scores) < wanted else "",
    )


def covered(recipe: Recipe, found: Found) -> tuple[float, int] | None:
    """The share of the reference's lead in F1 over the base model that the adapted model has (Poerner et al. 2020): the
    mean over those sets where all three are known and the reference leads, and how many they are; ``None`` without any.
    """
    shares = []
    for column in recipe.tables[0].columns:
        if column.score != "f1":
            continue
        scores = [_mean(found, (column.set, method, ""), column.score) for method in (_BASE, _GREEN, _REFERENCE)]
        if None not in scores and (share := gap_covered(*scores)) is not None:  # type: ignore[arg-type]
            shares.append(share)
    return (float(np.mean(shares)), len(shares)) if shares else None


def _mean(found: Found, cell: Cell, score: str) -> float | None:
    values = [value for one in found.records.get(cell, ()) if (value := metric_of(one["scores"], score)) is not None]
    return float(np.mean(values)) if values else None


def notes_of(lines: Sequence[Line]) -> list[str]:
    """The reasons of missing cells, each once, in the order in which their numbers count them."""
    return list(dict.fromkeys(line.missing for line in lines if line.missing))


def cells_of(line: Line, notes: Sequence[str]) -> list[str]:
    """The line as strings under ``HEAD``; its reason as the number of a note."""
    figures = [_figure(line.published, line.published_std), _figure(line.ours, line.std)]
    difference = "" if line.difference is None else rounded(line.difference, 1, signed=True)
    seeds = f"{line.seeds} of {line.wanted}" if line.wanted else ""
    note = f"[{notes.index(line.missing) + 1}]" if line.missing else ""
    return [line.set, line.model, *figures, difference, seeds, note]


def _figure(value: float | None, std: float | None) -> str:
    if value is None:
        return ""
    return rounded(value, 1) if std is None else f"{rounded(value, 1)} ± {rounded(std, 1)}"


def markdown(recipe: Recipe, lines: Sequence[Line], remarks: Sequence[str]) -> str:
    """The tables as a page, with ``remarks`` below."""
    notes = notes_of(lines)
    parts = [f"# {recipe.title}", "", f"{recipe.paper}, reproduced with greenadapt. {recipe.about}".rstrip(), ""]
    for table in recipe.tables:
        rows = [cells_of(line, notes) for line in lines if line.table == table.name]
        if rows:
            parts += [f"## {table.name}", "", f"Published figures: {table.source}.", ""]
            parts += [f"| {' | '.join(row)} |" for row in (HEAD, ["---"] * len(HEAD), *rows)] + [""]
    for remark in remarks:
        parts += [remark, ""]
    parts += [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join(parts).rstrip() + "\n"


def as_json(recipe: Recipe, lines: Sequence[Line], share: tuple[float, int] | None) -> Json:
    """Ready for JSON: the cells, and what is covered of the reference's lead."""
    found: Json = {"experiment": recipe.name, "paper": recipe.paper, "cells": [asdict(line) for line in lines]}
    found["gap_covered"] = None if share is None else {"share": share[0], "sets": share[1], "published": recipe.gap}
    return found
