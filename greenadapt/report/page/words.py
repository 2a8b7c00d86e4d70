"""The section about the added words: how often they occur, and how the base tokenizer cut them."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from greenadapt.report.page.blocks import Block, Facts, Heading, Paragraph, Section, Shown
from greenadapt.report.page.charts import Axis, bars
from greenadapt.report.tables import Table
from greenadapt.storage.arrays import Array

_BANDS = (1, 5, 10, 20, 50, 100, 500, 1000, 5000)
_MOST = 8  # pieces that are told apart
_EXAMPLES = 4


@dataclass(frozen=True)
class AddedData:
    """The rows that a model got."""

    model: str
    words: list[str]
    """Most frequent first."""
    pieces: Array
    """Base pieces of each, int (n,)."""
    counts: Array | None
    """How often each occurs, int (n,); ``None`` if the vectors came without counts."""
    worst: list[tuple[str, str, str]]
    """The most frequent of those cut into the most pieces: word, count, its base pieces."""


def words_section(models: list[AddedData]) -> Section:
    """The section of one or several adapted models."""
    blocks: list[Block] = []
    for number, data in enumerate(models, 1):
        if len(models) > 1:
            blocks.append(Heading(data.model))
        blocks.append(Facts(_facts(data)))
        if data.counts is not None:
            blocks.append(_by_count(data, data.counts, number))
        blocks.append(_by_pieces(data, number))
        if data.worst:
            table = Table("Frequent words that the base tokenizer cuts most", ["word", "times", "base pieces"], [])
            table.rows.extend(map(list, data.worst))
            blocks.append(Shown(table, (1,)))
        if data.counts is None:
            blocks.append(Paragraph("The vectors came without counts, so it is not known how often a word occurs."))
    return Section("words", "Added words", blocks)


def _facts(data: AddedData) -> list[tuple[str, str]]:
    facts = [
        ("model", data.model),
        ("added words", f"{len(data.words):,}"),
        ("base pieces of an added word, mean", f"{data.pieces.mean():.2f}"),
    ]
    if data.counts is not None:
        facts.append(("median count", f"{np.median(data.counts):,.0f}"))
    return facts


def _by_count(data: AddedData, counts: Array, number: int) -> Block:
    rows = []
    for low, high in pairwise((*_BANDS, None)):
        own = counts >= low if high is None else (counts >= low) & (counts < high)
        if own.any():
            label = f"{low:,} and more" if high is None else f"{low:,} to {high - 1:,}"
            rows.append({"band": label, "n": int(own.sum())})
    axes = Axis("n", "added words", ","), Axis("band", "times in the corpus")
    return bars(f"words-by-count-{number}", "Added words by how often they occur", rows, *axes)


def _by_pieces(data: AddedData, number: int) -> Block:
    cut = np.minimum(data.pieces, _MOST)
    rows = []
    for k in np.unique(cut).tolist():
        own = np.flatnonzero(cut == k)
        rows.append(
            {
                "pieces": ("[UNK]" if k == 1 else str(k)) if k < _MOST else f"{_MOST} or more",
                "n": len(own),
                "examples": ", ".join(data.words[i] for i in own[:_EXAMPLES].tolist()),
            }
        )
    axes = Axis("n", "added words", ","), Axis("pieces", "base pieces")
    plot = bars(f"words-by-pieces-{number}", "Added words by how many pieces they were cut into", rows, *axes)
    for row, line in zip(plot.shown.table.rows, rows, strict=True):
        row.append(str(line["examples"]))
    plot.shown.table.columns.append("most frequent")
    return plot
