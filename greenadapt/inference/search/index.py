"""An index of documents: how it is made and brought up to date, and the search in it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from os import PathLike
from typing import TYPE_CHECKING

from greenadapt.config import Count, SampleBy, SearchBy
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.fields import checked_call
from greenadapt.inference.entries import NamedText, Names, read_texts
from greenadapt.inference.search.paragraphs import paragraphs
from greenadapt.inference.search.store import (
    AGAIN,
    VECTORS,
    Change,
    DocumentKey,
    Entry,
    FolderStore,
    FolderWriter,
    Passage,
)
from greenadapt.inference.search.vectors import VectorFiles
from greenadapt.inference.search.words import Words, in_any_form, in_normal_form, model_words, raw_words
from greenadapt.progress import Progress, Silent
from greenadapt.storage.arrays import UInt64Array
from greenadapt.storage.files import Json
from greenadapt.workers import grouped

if TYPE_CHECKING:
    from greenadapt.inference.sentence_vectors import SentenceEncoder


_RRF_K = 60
_DEEP = 100
"""How many paragraphs of each ranking a hybrid search looks at, at least."""


def index_input(place: str) -> Json:
    """An index as an input in a manifest."""
    store = FolderStore(place)
    return {"sha256": store.state(), "path": store.place}


class Index:
    """An index that ``greenadapt index`` wrote; searches see what another process commits meanwhile.

    Raises ``MissingError`` if there is no index or a package is missing, ``InputError`` if it is damaged.

    ``model`` is where the model is that made the vectors, if it is not where it was; only one named so is downloaded.

    Examples:
        >>> index = greenadapt.Index("papers.index")
        >>> index.search("incubation period of the virus", top=3)[0].document
        'PMC7095418.xml'
    """

    @checked_call
    def __init__(self, place: str | PathLike[str], model: str | None = None) -> None:
        self.store = FolderStore(place)
        """The paragraphs."""
        self.place = self.store.place
        """The index's folder."""
        facts = self.store.facts()
        if facts is None:
            raise MissingError(f"{self.place} is not a search index", "make one with greenadapt index")
        self.facts = facts
        """What it was made from, and how, when it was last searched."""
        self._model = model

    def __repr__(self) -> str:
        return f"Index({self.place!r})\n  {len(self):,} paragraphs"

    def __len__(self) -> int:
        """How many paragraphs there are now."""
        return len(self.store)

    @checked_call
    def search(self, query: str, top: Count = 10, by: SearchBy = "bm25") -> list[Passage]:
        """The ``top`` best paragraphs for a query, best first.

        ``bm25`` ranks by the words of title and paragraph: Okapi BM25 with k1 1.2 and b 0.75 (Robertson and Zaragoza,
        2009, doi 10.1561/1500000019), which is the ``score``. ``dense`` ranks by the cosine of the vectors of query and
        paragraph. ``hybrid`` ranks by reciprocal rank fusion of these two, the sum of 1 / (60 + rank) over the rankings
        that have the paragraph among their 100 best (Cormack et al., 2009, doi 10.1145/1571941.1572114).

        A lone surrogate in the query is replaced by U+FFFD. Raises ``UsageError`` for ``dense`` and ``hybrid`` if the
        index has no vectors, and for an argument that is not allowed.
        """
        query = Decoder().without_surrogates(query, "query")
        self._refresh()
        if by == "bm25":
            return self._by_words(query, top)
        if by == "dense":
            return self._by_vector(query, top)
        deep = max(top, _DEEP)
        return fused([self._by_words(query, deep), self._by_vector(query, deep)])[:top]

    @cached_property
    def vectors(self) -> VectorFiles:
        """Those of the paragraphs; raises ``UsageError`` if there are none."""
        if not self.facts.config.vectors:
            raise UsageError(f"{self.place} has no vectors", "search --by bm25, or index with --vectors")
        return VectorFiles(self.store.folder / VECTORS, self.store)

    def require_vectors(self) -> None:
        """Raise ``InputError`` if there are fewer vectors than paragraphs, which have one each."""
        if len(self.vectors) < len(self):
            raise InputError(
                f"{self.place} has {len(self.vectors):,} vectors of {len(self):,} paragraphs: files of {VECTORS}/ are "
                "missing",
                AGAIN,
            )

    @cached_property
    def words(self) -> Words:
        """What splits a paragraph into the words that are compared."""
        words = self._raw_words
        return words if self.facts.normal_form is None else in_normal_form(words)

    @cached_property
    def words_of_query(self) -> Words:
        """The same of a query: in an index of version 0.2.0, whose words are as in the text, in every form."""
        return in_any_form(self._raw_words) if self.facts.normal_form is None else self.words

    @cached_property
    def _raw_words(self) -> Words:
        return raw_words if self.facts.model is None else model_words(self.store.tokenizer())

    @cached_property
    def encoder(self) -> "SentenceEncoder":
        """The model that makes the vectors; raises ``InputError`` if it is not the one that made those there."""
        from greenadapt.checkpoints.provenance import adapted_input
        from greenadapt.checkpoints.source import find_local_model, find_model
        from greenadapt.inference.sentence_vectors import SentenceEncoder

        assert self.facts.model is not None  # as there are vectors
        source = self.facts.model.source
        found = find_local_model(source, self.place) if self._model is None else find_model(self._model)
        if adapted_input(found)["sha256"] != self.facts.model.sha256:
            raise InputError(
                f"{found.source} is not, or no longer, the model {source} that {self.place} was made with",
                f"name that one with --model, or {AGAIN}",
            )
        return SentenceEncoder.open(found.folder)

    def warn_unfinished(self, progress: Progress) -> None:
        """Warn if not all documents are in it yet."""
        if self.facts.counts is None:
            progress.warn(
                f"{self.place} is not finished, it answers from {len(self):,} paragraphs: index is running, or was "
                "stopped, and the same command goes on"
            )

    def _refresh(self) -> None:
        """See whether another process made the index again meanwhile, with another model or configuration."""
        facts = self.store.facts()
        if facts is None or facts == self.facts:
            return
        if any(getattr(facts, name) != getattr(self.facts, name) for name in ("config", "model", "normal_form")):
            for name in ("vectors", "words", "words_of_query", "_raw_words", "encoder"):
                self.__dict__.pop(name, None)
        self.facts = facts

    def _by_words(self, query: str, top: int) -> list[Passage]:
        return self.store.search(self.words_of_query(query), top)

    def _by_vector(self, query: str, top: int) -> list[Passage]:
        self.vectors.refresh()
        self.require_vectors()
        if not len(self.vectors):
            return []
        [vector] = self.encoder.vectors([query], "mean", 1, Silent())
        wanted = top
        while True:  # vectors of paragraphs that were removed are found, too
            near = self.vectors.search(vector, wanted)
            known = self.store.passages(key for key, _ in near)
            found = [replace(known[key], score=cosine) for key, cosine in near if key in known]
            if len(found) >= top or len(near) < wanted:
                return found[:top]
            wanted *= 4


def fused(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Paragraphs by reciprocal rank fusion: ``score`` is the sum of 1 / (60 + rank), ranks counted from 1."""
    scores: dict[tuple[str, int], float] = {}
    passages: dict[tuple[str, int], Passage] = {}
    for ranking in rankings:
        for rank, one in enumerate(ranking, start=1):
            place = one.document, one.start
            scores[place] = scores.get(place, 0.0) + 1 / (_RRF_K + rank)
            passages[place] = one
    best = sorted(scores, key=lambda place: (-scores[place], place))
    return [replace(passages[place], score=scores[place]) for place in best]


_BATCH, _BATCH_WITH_VECTORS = 1 << 12, 1 << 10
"""Paragraphs in a commit: about a second of work, and some tens of seconds."""
_BLOCK, _BLOCK_CHARACTERS = 256, 1 << 22
"""Documents that are compared with the index at once, and their characters."""
_ENCODED = 32
"""Texts of full length that the model reads at once."""


@dataclass(frozen=True)
class _Document:
    """A document that is new or changed."""

    key: DocumentKey
    entries: list[Entry]
    texts: list[str]
    """What is searched of each entry."""
    is_new: bool


class Builder:
    """Brings an index up to date, in batches that are committed one by one.

    A document is known by its name; if its text or its title changed, its paragraphs are replaced. Those that are not
    among the documents any more are removed, once all documents have been read. ``sample_by`` is what the user said of
    plain text; the index itself says what is done.
    """

    def __init__(self, index: Index, progress: Progress, sample_by: SampleBy | None = None) -> None:
        self._index = index
        self._progress = progress
        self._config = index.facts.config
        self._sample_by = sample_by
        self._counts = Counter[str]()

    def build(self) -> Json:
        """Counts of ``documents`` in the index, and of those ``added``, ``changed``, ``removed`` and ``unchanged``, and
        of ``paragraphs``.
        """
        if self._config.vectors:
            self._index.require_vectors()
            self._index.vectors.remove_others()
        writer = self._index.store.writer()
        is_empty = not len(self._index)
        try:
            with self._progress.bar("index", None, "paragraphs") as bar:
                seen: set[int] = set()
                for batch in self._batches(seen, is_empty=is_empty):
                    self._write(batch, writer)
                    bar.advance(sum(len(document.entries) for document in batch))
            if not is_empty:
                self._remove_others(seen, writer)
        finally:
            writer.close()
        self._drop_vectors()
        counts = {name: self._counts[name] for name in ("added", "changed", "removed", "unchanged")}
        return {"documents": len(seen), **counts, "paragraphs": len(self._index)}

    def _contexts(self) -> Iterator[NamedText]:
        facts, names = self._index.facts, Names()
        how = facts.config.format, facts.config.fields, names
        by = self._sample_by if facts.config.sample_by == "line" else facts.config.sample_by
        for path, given in facts.documents.items():
            for context in read_texts(path, self._progress, *how, by):
                is_path = context.name.startswith(path)
                yield replace(context, name=given + context.name.removeprefix(path)) if is_path else context
        names.note_lines(self._progress)

    def _compared(self, seen: set[int], *, is_empty: bool) -> Iterator[tuple[NamedText, DocumentKey, Change]]:
        """Every document with what it is, compared with the index; in ``seen`` the hashed names of all."""
        for block in grouped(self._contexts(), lambda one: len(one.text), _BLOCK_CHARACTERS, _BLOCK):
            keys = [DocumentKey(_hash(one.name), _hash(one.name, one.title, one.text)) for one in block]
            seen.update(int(key.name, 16) for key in keys)
            changes: list[Change] = ["added"] * len(keys) if is_empty else self._index.store.changes(keys)
            self._counts.update(changes)
            yield from zip(block, keys, changes, strict=True)

    def _batches(self, seen: set[int], *, is_empty: bool) -> Iterator[list[_Document]]:
        """New and changed documents."""
        most = _BATCH_WITH_VECTORS if self._config.vectors else _BATCH
        documents = (
            self._document(context, key, is_new=change == "added")
            for context, key, change in self._compared(seen, is_empty=is_empty)
            if change != "unchanged"
        )
        return grouped(documents, lambda one: len(one.entries), most, most)

    def _document(self, context: NamedText, key: DocumentKey, *, is_new: bool) -> _Document:
        entries, texts = [], []
        for start, end in paragraphs(context.text, self._config.paragraph_chars):
            text = context.text[start:end]
            searched = text if not context.title or text.startswith(context.title) else f"{context.title}\n{text}"
            passage = Passage(context.name, context.title, start, end, text)
            own = int(_hash(context.name, str(start), searched), 16) >> 65  # 63 bits, as tantivy reads them from Python
            entries.append(Entry(own, passage, " ".join(self._index.words(searched))))
            texts.append(searched)
        return _Document(key, entries, texts, is_new)

    def _write(self, batch: Sequence[_Document], writer: FolderWriter) -> None:
        if self._config.vectors:
            self._encode(batch)  # first, so that every paragraph that is committed has its vector
        for document in batch:
            writer.put(document.key, document.entries, is_new=document.is_new)
        writer.commit()

    def _encode(self, batch: Sequence[_Document]) -> None:
        index = self._index
        texts = {
            entry.key: text
            for document in batch
            for entry, text in zip(document.entries, document.texts, strict=True)
            if entry.key not in index.vectors
        }
        if texts:
            vectors = index.encoder.vectors([*texts.values()], "mean", _ENCODED, Silent())
            index.vectors.add([*texts], vectors)

    def _remove_others(self, seen: set[int], writer: FolderWriter) -> None:
        for name in self._index.store.names():
            if int(name, 16) not in seen:
                writer.remove(name)
                self._counts["removed"] += 1
        writer.commit()

    def _drop_vectors(self) -> None:
        """Of paragraphs that are no longer there, once these are a quarter of all."""
        if not self._config.vectors:
            return
        index = self._index
        store = index.store
        assert isinstance(store, FolderStore)  # as there are vectors
        if len(index.vectors) > len(index) * 4 / 3:

            def is_kept(keys: UInt64Array) -> list[bool]:
                known = store.known(keys.tolist())
                return [key in known for key in keys.tolist()]

            index.vectors.drop(is_kept)


def _hash(*texts: str) -> str:
    """128 bits, hexadecimal."""
    digest = blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "replace")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
