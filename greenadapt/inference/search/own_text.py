"""A search in one text, whose paragraphs are indexed in memory."""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from greenadapt.config import IndexConfig
from greenadapt.inference.search.bm25 import add_words, best, prepare
from greenadapt.inference.search.paragraphs import Span, paragraphs
from greenadapt.inference.search.store import Passage
from greenadapt.inference.search.words import Words

if TYPE_CHECKING:
    import tantivy

_MEMORY = 15_000_000
"""Bytes that tantivy's writer gets, the least that it takes."""


def n_paragraphs(text: str) -> int:
    """How many paragraphs ``TextSearch`` cuts a text into."""
    return len(_spans(text))


def most_paragraphs(text: str) -> int:
    """No text of so many characters has more: neighbouring paragraphs together are longer than one may be."""
    return 1 + 2 * len(text) // IndexConfig.paragraph_chars


class TextSearch:
    """The paragraphs of one text, as ``index`` cuts it, found by the words that ``words`` splits them into.

    ``document`` and ``title`` are those of the text.
    """

    def __init__(self, text: str, words: Words, document: str = "", title: str = "") -> None:
        self.passages = [Passage(document, title, start, end, text[start:end]) for start, end in _spans(text)]
        """All of them, in order."""
        self._words = words

    def best(self, query: str, top: int) -> list[Passage]:
        """The ``top`` best by BM25, best first, equal ones in order; where fewer have a word of the query, the first
        others follow, with a score of 0. The only paragraph of a text is not scored.
        """
        if len(self.passages) < 2:
            return self.passages[:top]
        found = best(self._index, self._searcher, self._words(query), len(self.passages))
        numbers = self._searcher.fast_field_values("number", [at for _, at in found])
        scores = {number: score for number, (score, _) in zip(numbers, found, strict=True)}
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
        for number, one in enumerate(self.passages):
            fields = {"number": number, "words": " ".join(self._words(one.text))}
            writer.add_document(tantivy.Document.from_dict(fields, schema))
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        return index

    @cached_property
    def _searcher(self) -> "tantivy.Searcher":
        return self._index.searcher()


def _spans(text: str) -> list[Span]:
    """Where each paragraph is; a text without words is one, so that it is read, too."""
    return paragraphs(text, IndexConfig.paragraph_chars) or [(0, len(text))]
