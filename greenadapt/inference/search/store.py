"""The paragraphs of an index in tantivy, found by BM25: in a folder, or in memory for a single text."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from greenadapt.config import IndexConfig
from greenadapt.errors import InputError, ResourceError, UsageError, first_line, require
from greenadapt.inference.search.paragraphs import Span, paragraphs
from greenadapt.inference.search.words import Words, add_words, best, prepare
from greenadapt.store.files import expanded, parse_own
from greenadapt.store.results import Result, open_result, verified
from greenadapt.tokenization.vocabulary import tokenizer_json

if TYPE_CHECKING:
    import tantivy


INDEX = "index"
"""The stage that makes an index."""
AGAIN = "remove the index, and make it again"


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

    def scored(self, score: float) -> "Passage":
        """The same with a score; ``dataclasses.replace`` takes twice as long."""
        return Passage(self.document, self.title, self.start, self.end, self.text, score)


class StoredParagraph(NamedTuple):
    """A paragraph as it is stored."""

    passage: bytes
    """A ``Passage`` without its score, in JSON."""
    words: str
    """The words of title and paragraph, separated by spaces."""


WORDS, TOKENIZER = "words", "tokenizer.json"
"""Folder of tantivy's index, and the tokenizer that splits text into words."""
_WRITER_MEMORY = 64 << 20
"""Bytes of postings that tantivy keeps in memory before it writes a segment."""
_COMMITTED, _MANAGED, _LOCK = "meta.json", ".managed.json", ".tantivy-meta.lock"


def _schema() -> "tantivy.Schema":
    import tantivy

    builder = tantivy.SchemaBuilder()
    add_words(builder)
    builder.add_bytes_field("passage", stored=True)
    return builder.build()


class FolderStore:
    """The paragraphs of an index in its folder.

    Raises ``MissingError`` if there is no index or a package is missing, ``InputError`` if a file of it is missing or
    damaged, ``UsageError`` for an address, which is no folder.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        if fspath(folder).startswith(("http://", "https://")):
            raise UsageError(f"{fspath(folder)} is an address, an index is a folder", "give the one that index wrote")
        require("search", "tantivy", by="a search")
        self.result: Result = verified(open_result(expanded(folder).absolute(), INDEX))
        self.folder = self.result.folder
        self.place = str(self.folder)

    def __len__(self) -> int:
        """How many paragraphs it has."""
        return int(self._searcher.num_docs)

    def search(self, words: str, top: int) -> list[Passage]:
        """The ``top`` best by BM25 (k1 1.2, b 0.75) for words with spaces between, best first; each counts once."""
        hits = best(self._index, self._searcher, words, top)
        stored = b",".join(self._searcher.doc(address)["passage"][0] for _, address in hits)
        passages = parse_own(b"[%s]" % stored, list[Passage], self.folder / WORDS, AGAIN)
        scored = [passage.scored(score) for passage, (score, _) in zip(passages, hits, strict=True)]
        return sorted(scored, key=lambda passage: (-passage.score, passage.document, passage.start))

    @cached_property
    def _index(self) -> "tantivy.Index":
        import tantivy

        words = self.folder / WORDS
        try:
            index = tantivy.Index.open(str(words))
        except ValueError as error:  # also where its lock, opened for writing even to read, belongs to another user
            raise InputError(f"{words} cannot be opened ({first_line(error)})", "copy the folder") from None
        index.config_reader("manual")
        prepare(index)
        return index

    @cached_property
    def _searcher(self) -> "tantivy.Searcher":
        self._index.reload()
        return self._index.searcher()


class FolderWriter:
    """Writes the paragraphs of an index into the empty ``folder``, with the tokenizer of a model's folder, if any."""

    def __init__(self, folder: Path, tokenizer: Path | None) -> None:
        import tantivy

        self._folder = folder
        self._document = tantivy.Document
        (folder / WORDS).mkdir()
        if tokenizer is not None:
            (folder / TOKENIZER).write_bytes(tokenizer_json(tokenizer))
        with self._written():
            index = tantivy.Index(_schema(), str(folder / WORDS))
            prepare(index)
            self._writer = index.writer(_WRITER_MEMORY, 1)

    def put(self, stored: Iterable[StoredParagraph]) -> None:
        """Add paragraphs."""
        with self._written():
            for paragraph in stored:
                fields = self._document()
                fields.add_text("words", paragraph.words)
                fields.add_bytes("passage", paragraph.passage)
                self._writer.add_document(fields)

    def close(self) -> None:
        """Write all that was added, and wait until segments are merged.

        Then everyone may search who may read the folder: tantivy writes two files for their owner alone, and opens its
        lock for writing, even to read.
        """
        with self._written():
            self._writer.commit()
            self._writer.wait_merging_threads()
        words = self._folder / WORDS
        mode = self._folder.stat().st_mode & 0o666
        for name, allowed in ((_COMMITTED, mode), (_MANAGED, mode), (_LOCK, mode | (mode & 0o444) >> 1)):
            with suppress(FileNotFoundError):
                (words / name).chmod(allowed)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Raise ``ResourceError`` if the folder cannot be written; tantivy has one error for all reasons."""
        try:
            yield
        except ValueError as error:
            raise ResourceError(
                f"{self._folder} cannot be written, the disk may be full ({error})", "free some space"
            ) from None


_MEMORY = 15_000_000
"""Bytes that tantivy's writer gets, the least that it takes."""


def n_paragraphs(text: str) -> int:
    """How many paragraphs ``TextSearch`` cuts a text into."""
    return len(_spans(text))


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
        searcher = self._index.searcher()
        hits = best(self._index, searcher, self._words(query), len(self.passages))
        numbers = searcher.fast_field_values("number", [address for _, address in hits])
        scores = {number: score for number, (score, _) in zip(numbers, hits, strict=True)}
        order = sorted(range(len(self.passages)), key=lambda number: (-scores.get(number, 0.0), number))
        return [self.passages[number].scored(scores.get(number, 0.0)) for number in order[:top]]

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


def _spans(text: str) -> list[Span]:
    """The spans of the paragraphs; a text without words is a paragraph, so that it is read, too."""
    return paragraphs(text, IndexConfig.paragraph_chars) or [(0, len(text))]
