"""The section about the text: how much there is, its words, and how many pieces they take."""

from dataclasses import dataclass

import numpy as np

from greenadapt.errors import counted
from greenadapt.report.page.blocks import Block, Facts, Heading, Paragraph, Section
from greenadapt.report.page.charts import Axis, bars, lines
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json

_POINTS = 60  # of the plot of ranks
_MOST = 5  # pieces that are told apart
_FREQUENT = 15  # words listed


@dataclass(frozen=True)
class PieceCounts:
    """How many pieces the most frequent words of a corpus take in both tokenizations of a model."""

    model: str
    n_words: int
    share: float
    """Of the words in running text, those that are among them."""
    before: Array
    """By number of pieces from 0, how often words of so many occur in the text."""
    after: Array

    @staticmethod
    def mean(counts: Array) -> float:
        """Pieces per word."""
        return float((np.arange(len(counts)) * counts).sum() / max(int(counts.sum()), 1))


@dataclass(frozen=True)
class CorpusData:
    """What is known of a corpus."""

    title: str
    licence: str
    counts: Json
    """As in the manifest."""
    words: list[str]
    """The most frequent ones."""
    word_counts: Array
    """Of all words, most frequent first."""
    pieces: list[PieceCounts]


_NAMES = {
    "documents": "documents",
    "duplicates": "exact duplicates left out",
    "lines": "lines",
    "tokens": "words of running text",
    "words": "different words",
    "text_bytes": "bytes of text",
}


def corpus_section(corpora: list[CorpusData]) -> Section:
    """The section of one or several corpora."""
    blocks: list[Block] = []
    for number, data in enumerate(corpora, 1):
        if len(corpora) > 1:
            blocks.append(Heading(data.title))
        facts = [(name, f"{data.counts[key]:,}") for key, name in _NAMES.items() if data.counts.get(key) is not None]
        blocks += [Facts([("text", data.title), ("licence", data.licence), *facts]), _zipf(data, number)]
        for i, counts in enumerate(data.pieces):
            blocks += _pieces(counts, f"pieces-{number}-{i + 1}")
        frequent = zip(data.words[:_FREQUENT], data.word_counts[:_FREQUENT].tolist(), strict=False)
        named = [f"{word} ({count:,} times)" for word, count in frequent]
        blocks.append(Paragraph(f"The most frequent words: {', '.join(named)}."))
    return Section("corpus", "Corpus", blocks)


def _zipf(data: CorpusData, number: int) -> Block:
    n = len(data.word_counts)
    ranks = np.unique(np.geomspace(1, n, min(n, _POINTS)).round().astype(int))
    rows = [{"rank": int(rank), "count": int(data.word_counts[rank - 1])} for rank in ranks]
    title = f"How often words occur, by rank ({counted(n, 'word')})"
    x, y = Axis("rank", "rank", ",", log=True), Axis("count", "times", ",", log=True)
    return lines(f"zipf-{number}", title, rows, x, y)


def _pieces(counts: PieceCounts, name: str) -> list[Block]:
    before, after = PieceCounts.mean(counts.before), PieceCounts.mean(counts.after)
    rows = [
        {"pieces": f"{k}" if k < _MOST else f"{_MOST} or more", "by": by, "share": share}
        for k in range(1, _MOST + 1)
        for by, each in (("base tokenizer", counts.before), ("with the added words", counts.after))
        for share in [float((each[k:] if k == _MOST else each[k : k + 1]).sum() / max(int(each.sum()), 1))]
    ]
    text = (
        f"The base tokenizer of {counts.model} takes {before:.3f} pieces per word of the text, {after:.3f} with the "
        f"added words. This counts the {counts.n_words:,} most frequent words, {counts.share:.1%} of the text."
    )
    axes = Axis("share", "share of the words in the text", ".2%"), Axis("pieces", "pieces"), Axis("by", "tokenizer")
    return [bars(name, f"Pieces per word, {counts.model}", rows, *axes), Paragraph(text)]
