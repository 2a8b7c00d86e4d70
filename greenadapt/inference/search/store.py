"""Paragraphs in a tantivy index, found by BM25.

What is searched, what is shown and what is in the index already all lie in it, so that a commit of tantivy is the only
moment at which anything changes: a process that is killed leaves what was committed last.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenadapt.errors import InputError, ResourceError

if TYPE_CHECKING:
    import tantivy

_WRITER_MEMORY = 64 << 20
"""Bytes of postings that tantivy keeps in memory before it writes a segment."""
_BLOCK = 4096
"""Keys that are looked up at once."""
_HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Passage:
    """A paragraph that a search found: characters ``start`` to before ``end`` of its document."""

    document: str
    title: str
    start: int
    end: int
    text: str
    score: float = 0.0
    """How well it matches; what the number means depends on how it was searched, see ``Index.search``."""

    def as_dict(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


@dataclass(frozen=True)
class Entry:
    """A paragraph as it is stored."""

    key: int
    """Of 63 bits, for its vector."""
    passage: Passage
    words: str
    """What it is found by, separated by spaces."""


@dataclass(frozen=True)
class DocumentKey:
    """Hexadecimal hashes of a document: of its name, and of its name with its content."""

    name: str
    state: str


def _schema() -> "tantivy.Schema":
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("state", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("key", indexed=True, fast=True)
    builder.add_text_field("words", tokenizer_name="words", index_option="freq")
    builder.add_bytes_field("passage", stored=True)
    return builder.build()


class ParagraphStore:
    """The tantivy index in a folder; several processes may read it while one writes."""

    def __init__(self, folder: Path) -> None:
        import tantivy

        self.folder = folder
        try:
            self._index = tantivy.Index.open(str(folder))
        except ValueError as error:
            raise InputError(f"{folder} is not an index of tantivy, or is damaged ({error})", "index again") from None
        self._index.config_reader("manual")
        _register_words(self._index)
        self._seen = (0, 0)
        self.refresh()

    @classmethod
    def create(cls, folder: Path) -> "ParagraphStore":
        """An empty one in the folder, which has to exist."""
        import tantivy

        tantivy.Index(_schema(), str(folder))
        return cls(folder)

    def refresh(self) -> None:
        """Read from now on what was committed last."""
        found = (self.folder / "meta.json").stat()
        if (now := (found.st_mtime_ns, found.st_ino)) != self._seen:
            self._index.reload()
            self._searcher = self._index.searcher()
            self._seen = now

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    def search(self, words: Iterable[str], top: int) -> list[tuple[int, Passage]]:
        """Key and paragraph of the ``top`` best by BM25 (k1 1.2, b 0.75), best first; each word counts once."""
        import tantivy

        terms = [self._term("words", word, "freq") for word in dict.fromkeys(words)]
        query = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        hits = self._searcher.search(query, top, count=False).hits
        keys = self._searcher.fast_field_values("key", [address for _, address in hits])
        found = [
            (int(key or 0), replace(self._passage(at), score=score))
            for key, (score, at) in zip(keys, hits, strict=True)
        ]
        return sorted(found, key=lambda pair: (-pair[1].score, pair[1].document, pair[1].start))

    def passages(self, keys: Iterable[int]) -> Mapping[int, Passage]:
        """The paragraphs of those keys that are in the index."""
        return {key: self._passage(address) for key, address in self._addresses(list(keys)).items()}

    def known(self, keys: Sequence[int]) -> set[int]:
        """Those of ``keys`` that are in the index."""
        blocks = (keys[at : at + _BLOCK] for at in range(0, len(keys), _BLOCK))
        return {key for block in blocks for key in self._addresses(block)}

    def has(self, document: DocumentKey) -> bool:
        """Whether the document is there with this content."""
        return self._count("state", document.state) > 0

    def count(self, name: str) -> int:
        """How many paragraphs the document of this hashed name has."""
        return self._count("name", name)

    def names(self) -> Iterator[str]:
        """The hashed names of all documents, and of some that were removed."""
        for first in _HEX:  # a part at a time, to bound memory
            for name, _ in self._searcher.terms_with_prefix("name", first):
                yield name

    def writer(self) -> "StoreWriter":
        """The one writer; it must be closed."""
        return StoreWriter(self)

    def _addresses(self, keys: Sequence[int]) -> dict[int, "tantivy.DocAddress"]:
        import tantivy

        query = tantivy.Query.term_set_query(self._index.schema, "key", keys)
        addresses = [at for _, at in self._searcher.search(query, max(1, len(keys)), count=False).hits]
        found = self._searcher.fast_field_values("key", addresses)
        return {int(key or 0): at for key, at in zip(found, addresses, strict=True)}

    def _count(self, field: str, value: str) -> int:
        found: Any = self._searcher.search(self._term(field, value, "basic"), 1)  # the stubs lack ``count``
        return int(found.count)

    def _term(self, field: str, value: str, option: str) -> "tantivy.Query":
        import tantivy

        return tantivy.Query.term_query(self._index.schema, field, value, option)

    def _passage(self, address: "tantivy.DocAddress") -> Passage:
        return Passage(**json.loads(self._searcher.doc(address)["passage"][0]))


class StoreWriter:
    """Changes that take effect together at ``commit``."""

    def __init__(self, store: ParagraphStore) -> None:
        import tantivy

        self._store = store
        self._schema = store._index.schema
        self._document = tantivy.Document
        self._writer = store._index.writer(_WRITER_MEMORY, 1)

    def remove(self, name: str) -> None:
        """Take out all paragraphs of the document of this hashed name that were added before."""
        self._writer.delete_documents_by_term("name", name)

    def add(self, document: DocumentKey, entry: Entry) -> None:
        """Add a paragraph."""
        passage = entry.passage.as_dict()
        del passage["score"]
        fields = {
            "name": document.name,
            "state": document.state,
            "key": entry.key,
            "words": entry.words,
            "passage": json.dumps(passage, ensure_ascii=False).encode(),
        }
        with self._written():
            self._writer.add_document(self._document.from_dict(fields, self._schema))

    def commit(self) -> None:
        """Make all changes so far last, and visible, at once."""
        with self._written():
            self._writer.commit()
        self._store.refresh()

    def close(self) -> None:
        """Wait until segments are merged."""
        with self._written():
            self._writer.wait_merging_threads()
        self._store.refresh()

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Raise ``ResourceError`` if the folder cannot be written; tantivy has one error for all reasons."""
        try:
            yield
        except ValueError as error:
            raise ResourceError(
                f"{self._store.folder} cannot be written, the disk may be full ({error})",
                "free some space; the same command goes on",
            ) from None


def _register_words(index: "tantivy.Index") -> None:
    import tantivy

    index.register_tokenizer("words", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())
