"""A paper's tables with our figures beside the published ones."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from benchmarks.tables import aligned
from experiments.bench import Cell, Experiment
from experiments.recipe import Column, Row, Table
from greenadapt.errors import as_decimal, as_percent, pluralize
from greenadapt.store.files import Json, shorten_path
from greenadapt.tasks.metrics import gap_covered, metric_of

HEAD = ("set", "model", "published", "ours", "difference", "seeds", "missing")


@dataclass(frozen=True)
class Tables:
    """The tables of an experiment, as far as its runs are done, for some methods and sets."""

    experiment: Experiment
    methods: Sequence[str]
    sets: Sequence[str]
    n_seeds: int

    def cells(self) -> list[Json]:
        """The cells, table by table and set by set; figures are in points, deviations those of the seeds."""
        return [self._cell(*cell) for cell in self.experiment.recipe.cells(self.methods, self.sets)]

    def _cell(self, table: Table, number: int, column: Column, row: Row) -> Json:
        cell = (column.set, row.method, column.variant)
        points = self._points(cell, column.score)
        (published, published_std), ours = row.figures(number), fmean(points) if points else None
        n_seeds = 0 if row.why else self.n_seeds
        why = row.why or self.experiment.reasons.get(cell, "not run yet")
        if cell in self.experiment.done and not points:
            why = f"{column.score} has no value on this test set"
        return {
            "table": table.name,
            "set": column.name,
            "model": row.name,
            "method": row.method,
            "score": column.score,
            "published": published,
            "published_std": published_std,
            "ours": ours,
            "std": stdev(points) if len(points) > 1 else None,
            "difference": None if ours is None or published is None else ours - published,
            "seeds": len(points),
            "wanted": n_seeds,
            "missing": why if not points or len(points) < n_seeds else "",
        }

    def _points(self, cell: Cell, score: str) -> list[float]:
        scores = [metric_of(record["scores"], score) for record in self.experiment.done.get(cell, ())]
        return [100 * value for value in scores if value is not None]

    def covered(self) -> Json | None:
        """The share of the reference's lead in F1 over the base model that the adapted model has (Poerner et al. 2020).

        It is the mean over the sets in which all three have a score and the reference leads.
        """
        shares = []
        for column in self.experiment.recipe.tables[0].columns:
            points = [self._points((column.set, method, ""), "f1") for method in ("base", "green", "reference")]
            if column.score == "f1" and all(points) and (share := gap_covered(*map(fmean, points))) is not None:
                shares.append(share)
        gap = self.experiment.recipe.gap
        return {"share": fmean(shares), "sets": len(shares), "published": gap} if shares else None

    def used(self) -> dict[str, str]:
        """Models and corpora by role."""
        roles = {**self.experiment.models, **self.experiment.corpora}
        return {role: shorten_path(name) for role, name in roles.items() if name}

    def as_dict(self) -> Json:
        recipe = self.experiment.recipe
        head = {"experiment": recipe.name, "paper": recipe.paper, "folder": str(self.experiment.root)}
        return {**head, "cells": self.cells(), "gap_covered": self.covered(), "used": self.used()}

    def page(self) -> str:
        """The tables in Markdown, what they were made with, and what is missing."""
        recipe, cells = self.experiment.recipe, self.cells()
        notes = list(dict.fromkeys(cell["missing"] for cell in cells if cell["missing"]))
        parts = [f"# {recipe.title}", f"{recipe.paper}. {recipe.about}".rstrip()]
        for table in recipe.tables:
            rows = [_row(cell, notes) for cell in cells if cell["table"] == table.name]
            if rows:
                parts += [f"## {table.name}", f"Published figures: {table.source}.", aligned([HEAD, *rows]).rstrip()]
        settings = [f"{role} = {name}" for role, name in self.used().items()]
        for name in ("task", "training", "sampling", "w2v"):
            settings += [f"{name} {key} = {json.dumps(value)}" for key, value in getattr(recipe, name).items()]
        parts.append(f"Run with {', '.join(settings)}.")
        if gap := self.covered():
            lead = f"Of the reference's lead over the base model {as_percent(gap['share'], 0)} is covered"
            parts.append(f"{lead} (mean, {pluralize(gap['sets'], 'set')}). {recipe.gap}".rstrip())
        parts.append("\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1)))
        return "\n\n".join(parts).rstrip() + "\n"


def _row(cell: Json, notes: Sequence[str]) -> list[str]:
    """The cell as strings under ``HEAD``; why it is missing as the number of a note."""
    figures = [_figure(cell["published"], cell["published_std"]), _figure(cell["ours"], cell["std"])]
    difference = "" if cell["difference"] is None else as_decimal(cell["difference"], 1, signed=True)
    seeds = f"{cell['seeds']} of {cell['wanted']}" if cell["wanted"] else ""
    note = f"[{notes.index(cell['missing']) + 1}]" if cell["missing"] else ""
    return [cell["set"], cell["model"], *figures, difference, seeds, note]


def _figure(value: float | None, std: float | None) -> str:
    if value is None:
        return ""
    return as_decimal(value, 1) if std is None else f"{as_decimal(value, 1)} ± {as_decimal(std, 1)}"
