"""An index of documents: how it is made and brought up to date, and the search in it."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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
    TOKENIZER,
    VECTORS,
    Change,
    DocumentKey,
    FolderStore,
    FolderWriter,
    Passage,
    StoredDocument,
    StoredParagraph,
)
from greenadapt.inference.search.vectors import VectorFiles
from greenadapt.inference.search.words import Words, in_any_form, in_normal_form, model_words, raw_words
from greenadapt.progress import Progress, Silent
from greenadapt.storage.files import Json
from greenadapt.tokenization.vocabulary import load_tokenizer
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
    """An index that ``greenadapt index`` wrote; searches see the commits of other processes.

    Raises ``MissingError`` if there is no index or a package is missing, ``InputError`` if it is damaged.

    ``model`` is the model that made the vectors, if its folder was moved; only a model named here is downloaded.

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
        """Its sources and settings at the last search."""
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
            return self.store.search(self.words_of_query(query), top)
        if by == "dense":
            return self._by_vector(query, top)
        n = max(top, _DEEP)
        return _fused([self.store.search(self.words_of_query(query), n), self._by_vector(query, n)])[:top]

    @cached_property
    def vectors(self) -> VectorFiles:
        """The vectors of the paragraphs; raises ``UsageError`` if there are none."""
        if not self.facts.config.vectors:
            raise UsageError(f"{self.place} has no vectors", "search --by bm25, or index with --vectors")
        return VectorFiles(self.store)

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
        """Splits a paragraph into the words that a search compares."""
        words = self._raw_words
        return words if self.facts.normal_form is None else in_normal_form(words)

    @cached_property
    def words_of_query(self) -> Words:
        """Splits a query; for an index of version 0.2.0, whose words are as in the text, into words of every form."""
        return in_any_form(self._raw_words) if self.facts.normal_form is None else self.words

    @cached_property
    def _raw_words(self) -> Words:
        return raw_words if self.facts.model is None else model_words(load_tokenizer(self.store.folder / TOKENIZER))

    @cached_property
    def encoder(self) -> "SentenceEncoder":
        """The model that made the vectors; raises ``InputError`` for another one."""
        from greenadapt.checkpoints.provenance import adapted_input
        from greenadapt.checkpoints.source import find_local_model, find_model
        from greenadapt.inference.sentence_vectors import SentenceEncoder

        assert self.facts.model is not None  # as there are vectors
        source = self.facts.model.source
        model = find_local_model(source, self.place) if self._model is None else find_model(self._model)
        if adapted_input(model)["sha256"] != self.facts.model.sha256:
            raise InputError(
                f"{model.source} is not, or no longer, the model {source} that {self.place} was made with",
                f"name that one with --model, or {AGAIN}",
            )
        return SentenceEncoder.open(model.folder)

    def warn_unfinished(self, progress: Progress) -> None:
        """Warn if not all documents are in it yet."""
        if self.facts.counts is None:
            progress.warn(
                f"{self.place} is not finished, it answers from {len(self):,} paragraphs: index is running, or was "
                "stopped, and the same command resumes it"
            )

    def _refresh(self) -> None:
        """Forget what is cached if another process made the index again, with another model or configuration."""
        facts = self.store.facts()
        if facts is None or facts == self.facts:
            return
        if any(getattr(facts, name) != getattr(self.facts, name) for name in ("config", "model", "normal_form")):
            for name in ("vectors", "words", "words_of_query", "_raw_words", "encoder"):
                self.__dict__.pop(name, None)
        self.facts = facts

    def _by_vector(self, query: str, top: int) -> list[Passage]:
        self.vectors.refresh()
        self.require_vectors()
        if not len(self.vectors):
            return []
        [vector] = self.encoder.vectors([query], "mean", 1, Silent())
        n = top
        while True:  # the search finds vectors of removed paragraphs, too
            nearest = self.vectors.search(vector, n)
            passages = self.store.passages(key for key, _ in nearest)
            best = [passages[key].scored(cosine) for key, cosine in nearest if key in passages]
            if len(best) >= top or len(nearest) < n:
                return best[:top]
            n *= 4


def _fused(rankings: Sequence[Sequence[Passage]]) -> list[Passage]:
    """Paragraphs by reciprocal rank fusion: ``score`` is the sum of 1 / (60 + rank), ranks counted from 1."""
    scores: dict[tuple[str, int], float] = {}
    passages: dict[tuple[str, int], Passage] = {}
    for ranking in rankings:
        for rank, passage in enumerate(ranking, start=1):
            key = passage.document, passage.start
            scores[key] = scores.get(key, 0.0) + 1 / (_RRF_K + rank)
            passages[key] = passage
    best = sorted(scores, key=lambda key: (-scores[key], key))
    return [passages[key].scored(scores[key]) for key in best]


_BATCH, _BATCH_WITH_VECTORS = 1 << 6, 1 << 10
"""Paragraphs that are put into the index at once: few, which stay in the cache, and some tens of seconds of work."""
COMMIT_SECONDS = 20.0
"""Time between commits: a killed run loses so much work, but no vectors."""
_BLOCK, _BLOCK_CHARACTERS = 64, 1 << 22
"""Documents that are compared with the index at once, and their characters."""
_ENCODED = 32
"""Texts of full length that the model reads at once."""


class Builder:
    """Brings an index up to date, in batches; a commit follows at times, and at the end.

    A document is identified by its name; if its text or its title changed, its paragraphs are replaced. Documents that
    are gone are removed, once all others have been read. ``sample_by`` is the user's option for plain text; the index
    has its own, which counts.
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
            self._index.vectors.remove_leftovers()
        writer = FolderWriter(self._index.store)
        is_empty = not len(self._index)
        committed = time.monotonic()
        try:
            with self._progress.bar("index", None, "paragraphs") as bar:
                seen: set[int] = set()
                for batch in self._batches(seen, is_empty=is_empty):
                    if self._config.vectors:
                        self._encode(batch)  # first, so that every paragraph that is committed has its vector
                    writer.put(document for document, _ in batch)
                    if time.monotonic() - committed >= COMMIT_SECONDS:
                        writer.commit()
                        committed = time.monotonic()
                    bar.advance(sum(len(document.paragraphs) for document, _ in batch))
            if not is_empty:
                for name in self._index.store.names_except(seen):
                    writer.remove(name)
                    self._counts["removed"] += 1
            writer.commit()
        finally:
            writer.close()
        self._drop_vectors()
        counts = {name: self._counts[name] for name in ("added", "changed", "removed", "unchanged")}
        return {"documents": len(seen), **counts, "paragraphs": len(self._index)}

    def _texts(self) -> Iterator[NamedText]:
        config, names = self._config, Names()
        by = self._sample_by if config.sample_by == "line" else config.sample_by
        for path, prefix in self._index.facts.documents.items():
            for text in read_texts(path, self._progress, config.format, config.fields, names, by):
                is_renamed = path != prefix and text.name.startswith(path)
                yield replace(text, name=prefix + text.name.removeprefix(path)) if is_renamed else text
        names.note_lines(self._progress)

    def _compared(self, seen: set[int], *, is_empty: bool) -> Iterator[tuple[NamedText, DocumentKey, Change]]:
        """Every document with its difference to the index; in ``seen`` the hashed names of all."""
        for block in grouped(self._texts(), lambda text: len(text.text), _BLOCK_CHARACTERS, _BLOCK):
            keys = [_key(text) for text in block]
            seen.update(int(key.name, 16) for key in keys)
            changes: list[Change] = ["added"] * len(keys) if is_empty else self._index.store.changes(keys)
            self._counts.update(changes)
            yield from zip(block, keys, changes, strict=True)

    def _batches(self, seen: set[int], *, is_empty: bool) -> Iterator[list[tuple[StoredDocument, list[str]]]]:
        """New and changed documents, with the text of each paragraph for its vector, which begins with the title."""
        batch_size = _BATCH_WITH_VECTORS if self._config.vectors else _BATCH
        documents = (
            self._document(text, key, is_new=change == "added")
            for text, key, change in self._compared(seen, is_empty=is_empty)
            if change != "unchanged"
        )
        return grouped(documents, lambda pair: len(pair[1]), batch_size, batch_size)

    def _document(self, document: NamedText, key: DocumentKey, *, is_new: bool) -> tuple[StoredDocument, list[str]]:
        stored, texts, words = [], [], self._index.words
        names = f'{{"document": {_json(document.name)}, "title": {_json(document.title)}'
        for start, end in paragraphs(document.text, self._config.paragraph_chars):
            text = document.text[start:end]
            passage = f'{names}, "start": {start}, "end": {end}, "text": {_json(text)}}}'
            if document.title and not text.startswith(document.title):
                text = f"{document.title}\n{text}"
            number = _number(document.name, start, text) if self._config.vectors else None
            stored.append(StoredParagraph(number, passage.encode(), words(text)))
            texts.append(text)
        return StoredDocument(key, stored, is_new), texts

    def _encode(self, batch: Iterable[tuple[StoredDocument, list[str]]]) -> None:
        index = self._index
        missing = {
            paragraph.key: text
            for document, texts in batch
            for paragraph, text in zip(document.paragraphs, texts, strict=True)
            if paragraph.key is not None and paragraph.key not in index.vectors
        }
        if missing:
            vectors = index.encoder.vectors([*missing.values()], "mean", _ENCODED, Silent())
            index.vectors.add([*missing], vectors)

    def _drop_vectors(self) -> None:
        """Drop the vectors of removed paragraphs, once they are a quarter of all."""
        if not self._config.vectors:
            return
        index = self._index
        if len(index.vectors) > len(index) * 4 / 3:
            index.vectors.drop(index.store.stored_keys)


_json = json.JSONEncoder(ensure_ascii=False).encode


def _key(document: NamedText) -> DocumentKey:
    name = _framed(document.name)
    return DocumentKey(_hash(name), _hash(name + _framed(document.title) + _framed(document.text)))


def _number(name: str, start: int, text: str) -> int:
    """The key of a paragraph: 63 bits, as tantivy reads them from Python."""
    return int(_hash(_framed(name) + _framed(str(start)) + _framed(text)), 16) >> 65


def _framed(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return len(data).to_bytes(8, "little") + data


def _hash(framed: bytes) -> str:
    """128 bits, hexadecimal."""
    return blake2b(framed, digest_size=16).hexdigest()
