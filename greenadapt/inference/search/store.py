"""The paragraphs that a search finds, and a search in a single text, in memory."""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from greenadapt.config import IndexConfig
from greenadapt.inference.search.paragraphs import Span, paragraphs
from greenadapt.inference.search.words import Words, add_words, find_best, prepare

if TYPE_CHECKING:
    import tantivy


@dataclass(frozen=True)
class Passage:
    """A paragraph that a search found: characters ``start`` to before ``end`` of its document."""

    document: str
    title: str
    start: int
    end: int
    text: str
    score: float = 0.0
    """How well it matches, see ``Index.search``."""

    def as_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


_MEMORY = 15_000_000
"""Bytes that tantivy's writer gets, the least that it takes."""


class TextSearch:
    """The paragraphs of one text, as ``index`` cuts it, found by the words that ``words`` splits them into.

    ``document`` and ``title`` are those of the text.
    """

    def __init__(self, text: str, words: Words, document: str = "", title: str = "") -> None:
        self.passages = [Passage(document, title, start, end, text[start:end]) for start, end in find_spans(text)]
        """All of them, in order."""
        self._words = words

    def find_best(self, query: str, top: int) -> list[Passage]:
        """The ``top`` best by BM25, best first, equal ones in order; where fewer have a word of the query, the first
        others follow, with a score of 0. The only paragraph of a text is not scored.
        """
        if len(self.passages) < 2:
            return self.passages[:top]
        searcher = self._index.searcher()
        hits = find_best(self._index, searcher, self._words(query), len(self.passages))
        numbers = searcher.fast_field_values("number", [address for _, address in hits])
        scores = {number: score for number, (score, _) in zip(numbers, hits, strict=True)}
        order = sorted(range(len(self.passages)), key=lambda number: (-scores.get(number, 0.0), number))
        return [replace(self.passages[number], score=scores.get(number, 0.0)) for number in order[:top]]

    @cached_property
    def _index(self) -> "tantivy.Index":
        import tantivy

        builder = tantivy.SchemaBuilder()
        add_words(builder)
        builder.add_unsigned_field("number", fast=True)
        schema = builder.build()
        index = tantivy.Index(schema)
        prepare(index)
        writer = index.writer(_MEMORY, 1)
        for number, passage in enumerate(self.passages):
            fields = {"number": number, "words": self._words(passage.text)}
            writer.add_document(tantivy.Document.from_dict(fields, schema))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        return index


def find_spans(text: str) -> list[Span]:
    """The spans of the paragraphs; a text without words is a paragraph, so that it is read, too."""
    return paragraphs(text, IndexConfig.paragraph_chars) or [(0, len(text))]
