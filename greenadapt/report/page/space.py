"""The section about the vectors: how good the map is, the new rows' lengths, a map of words, and neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greenadapt.errors import as_percent
from greenadapt.report.map_quality import explains_nothing, r2
from greenadapt.report.page.blocks import Block, Heading, Paragraph, Search, Section, Shown
from greenadapt.report.page.charts import Axis, Rows, lines, scatter
from greenadapt.report.tables import Table
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json

_BINS = 40


@dataclass(frozen=True)
class MapData:
    """A map from word vectors to rows, or a recipe of rows, and its figures on held-out words."""

    name: str
    method: str
    n_overlap: int
    figures: Json | None
    """As the manifest has ``HeldOut``; ``None`` if nothing could be measured."""
    note: str = ""


@dataclass(frozen=True)
class Plane:
    """Sampled words and wordpieces on two axes: ``label``, ``x``, ``y``, ``what``, ``panel`` and ``named`` (if there is
    room) of each."""

    points: Rows
    share: float
    """Of the variance, that the axes show."""
    table: list[list[str]]
    """Words, their base pieces."""


@dataclass(frozen=True)
class RowsData:
    """The new rows of a model beside its own."""

    model: str
    base_norms: Array
    new_norms: Array
    """Lengths of sampled rows, float (n,)."""
    n_base: int
    n_new: int
    plane: Plane | None
    near: Sequence[Sequence[str | Sequence[str]]]
    """Sampled words and their neighbours by view."""
    n_candidates: tuple[int, int]
    """Wordpieces and added words that were compared."""
    command: str
    """What shows the neighbours of other words."""


def space_section(maps: list[MapData], models: list[RowsData]) -> Section:
    """The section of any number of maps and adapted models."""
    blocks: list[Block] = []
    known = [one for one in maps if one.figures]
    if known:
        blocks.append(_quality(known))
        if any(explains_nothing(one.figures or {}) for one in known):
            blocks.append(
                Paragraph(
                    "R² under 0 means that the mean row would be closer to the held-out rows than these are; the "
                    "cosine and the precision say how well the direction fits."
                )
            )
        blocks += _by_count(known)
    blocks += [Paragraph(f"{one.name}: {one.note}") for one in maps if one.note]
    for number, data in enumerate(models, 1):
        if len(models) > 1:
            blocks.append(Heading(data.model))
        blocks += _rows(data, number)
    return Section("space", "Alignment and rows", blocks)


def _quality(maps: list[MapData]) -> Block:
    rows = []
    for one in maps:
        figures = one.figures or {}
        found = figures["base_rows"]["cosine"]
        rows.append(
            [
                one.name,
                one.method,
                f"{figures['n_fitted']:,}",
                f"{figures['n_heldout']:,}",
                r2(figures).split(" ")[1],
                f"{figures['cosine']:.3f}",
                as_percent(found["precision_at_1"]),
                as_percent(found["precision_at_10"]),
                as_percent(figures["base_rows"]["csls"]["precision_at_10"]),
            ]
        )
    columns = ["rows by", "method", "words fitted on", "held out", "R²", "mean cosine", "own row first"]
    columns += ["own row among ten", "by CSLS"]
    return Shown(Table("Rows of held-out words, predicted", columns, rows), range(2, 9))


def _by_count(maps: list[MapData]) -> list[Block]:
    rows = []
    for one in maps:
        bands = (one.figures or {})["by_count"]
        for band, after in zip(bands, [*bands[1:], None], strict=True):
            if band["precision_at_10"] is not None:
                label = f"{band['min_count']:,} to {after['min_count'] - 1:,}" if after else f"{band['min_count']:,} up"
                rows.append({"band": label, "share": band["precision_at_10"], "by": one.name, "n": band["n_words"]})
    if not rows:
        return []
    axes = Axis("band", "times in the corpus"), Axis("share", "own row among ten", ".1%"), Axis("by", "rows by")
    plot = lines("precision-by-count", "Held-out words whose own row is among the ten nearest", rows, *axes)
    plot.shown.table.columns.append("words")
    for texts, row in zip(plot.shown.table.rows, rows, strict=True):
        texts.append(f"{row['n']:,}")
    return [plot]


def _rows(data: RowsData, number: int) -> list[Block]:
    blocks: list[Block] = [_norms(data, number)]
    if data.plane is not None:
        blocks += _plane(data.plane, number)
    if data.near:
        pieces, added = data.n_candidates
        blocks.append(Heading("Neighbours"))
        blocks.append(
            Paragraph(
                f"The nearest rows by cosine of the {len(data.near):,} most frequent added words, among {pieces:,} "
                f"wordpieces and the {added:,} most frequent added words. Before, a word is the mean of its pieces."
            )
        )
        columns = ["word", "before: wordpieces", "after: wordpieces", "after: added words"]
        blocks.append(Search(f"near-{number}", columns, data.near, data.command))
    return blocks


def _norms(data: RowsData, number: int) -> Block:
    both = np.concatenate([data.base_norms, data.new_norms])
    edges = np.linspace(both.min(), both.max() + 1e-6, _BINS + 1)
    rows = []
    for what, norms, n in (("wordpieces", data.base_norms, data.n_base), ("added words", data.new_norms, data.n_new)):
        by = what if len(norms) == n else f"{what} ({len(norms):,} of {n:,})"
        found, _ = np.histogram(norms, edges)
        shares = (found / max(len(norms), 1)).tolist()
        middles = ((edges[:-1] + edges[1:]) / 2).tolist()
        rows += [{"norm": norm, "share": share, "by": by} for norm, share in zip(middles, shares, strict=True)]
    axes = Axis("norm", "length of the row", ".3f", zero=False), Axis("share", "share", ".1%"), Axis("by", "rows")
    return lines(f"norms-{number}", "Lengths of rows", rows, *axes)


def _plane(plane: Plane, number: int) -> list[Block]:
    shown = Table("Added words on the map", ["word", "base pieces", "x before", "y before", "x after", "y after"], [])
    shown.rows.extend(plane.table)
    title = f"Added words among wordpieces ({as_percent(plane.share)} of the variance)"
    plot = scatter(f"map-{number}", title, plane.points, shown)
    text = (
        "Each row has length 1, and both panels have the same axes, the first two principal components of the "
        "wordpieces and of the new rows. Words that are near each other here can be far apart in the other dimensions. "
        "Point at a mark to see its word."
    )
    return [plot, Paragraph(text)]
