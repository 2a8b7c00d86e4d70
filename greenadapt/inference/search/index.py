"""An index of documents: how it is made and brought up to date, and the search in it."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from os import PathLike

from greenadapt.config import Count, SampleBy
from greenadapt.corpus.text import Decoder
from greenadapt.errors import MissingError
from greenadapt.fields import checked_call
from greenadapt.inference.entries import NamedText, Names, read_texts
from greenadapt.inference.search.paragraphs import paragraphs
from greenadapt.inference.search.store import (
    TOKENIZER,
    Change,
    DocumentKey,
    FolderStore,
    FolderWriter,
    Passage,
    StoredDocument,
    StoredParagraph,
)
from greenadapt.inference.search.words import Words, in_normal_form, model_words, raw_words
from greenadapt.progress import Progress
from greenadapt.storage.files import Json
from greenadapt.tokenization.vocabulary import load_tokenizer
from greenadapt.workers import grouped


def index_input(place: str) -> Json:
    """An index as an input in a manifest."""
    store = FolderStore(place)
    return {"sha256": store.state(), "path": store.place}


class Index:
    """An index that ``greenadapt index`` wrote; searches see the commits of other processes.

    Raises ``MissingError`` if there is no index or a package is missing, ``InputError`` if it is damaged.

    Examples:
        >>> index = greenadapt.Index("papers.index")
        >>> index.search("incubation period of the virus", top=3)[0].document
        'PMC7095418.xml'
    """

    @checked_call
    def __init__(self, place: str | PathLike[str]) -> None:
        self.store = FolderStore(place)
        """The paragraphs."""
        self.place = self.store.place
        """The index's folder."""
        facts = self.store.facts()
        if facts is None:
            raise MissingError(f"{self.place} is not a search index", "make one with greenadapt index")
        self.facts = facts
        """Its sources and settings at the last search."""

    def __repr__(self) -> str:
        return f"Index({self.place!r})\n  {len(self):,} paragraphs"

    def __len__(self) -> int:
        """How many paragraphs there are now."""
        return len(self.store)

    @checked_call
    def search(self, query: str, top: Count = 10) -> list[Passage]:
        """The ``top`` best paragraphs for a query, best first.

        They are ranked by the words of title and paragraph: Okapi BM25 with k1 1.2 and b 0.75 (Robertson and Zaragoza,
        2009, doi 10.1561/1500000019), which is the ``score``.

        A lone surrogate in the query is replaced by U+FFFD. Raises ``UsageError`` for an argument that is not allowed.
        """
        query = Decoder().without_surrogates(query, "query")
        self._refresh()
        return self.store.search(self.words(query), top)

    @cached_property
    def words(self) -> Words:
        """Splits a paragraph or a query into the words that a search compares."""
        is_plain = self.facts.model is None
        return in_normal_form(raw_words if is_plain else model_words(load_tokenizer(self.store.folder / TOKENIZER)))

    def warn_unfinished(self, progress: Progress) -> None:
        """Warn if not all documents are in it yet."""
        if self.facts.counts is None:
            progress.warn(
                f"{self.place} is not finished, it answers from {len(self):,} paragraphs: index is running, or was "
                "stopped, and the same command resumes it"
            )

    def _refresh(self) -> None:
        """Read the facts again, and forget the words if another process made the index again with another model."""
        facts = self.store.facts()
        if facts is None or facts == self.facts:
            return
        if facts.model != self.facts.model:
            self.__dict__.pop("words", None)
        self.facts = facts


_BATCH = 1 << 6
"""Paragraphs that are put into the index at once: few, which stay in the cache."""
COMMIT_SECONDS = 20.0
"""Time between commits: a killed run loses so much work."""
_BLOCK, _BLOCK_CHARACTERS = 64, 1 << 22
"""Documents that are compared with the index at once, and their characters."""


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
        writer = FolderWriter(self._index.store)
        is_empty = not len(self._index)
        committed = time.monotonic()
        try:
            with self._progress.bar("index", None, "paragraphs") as bar:
                seen: set[int] = set()
                for batch in self._batches(seen, is_empty=is_empty):
                    writer.put(batch)
                    if time.monotonic() - committed >= COMMIT_SECONDS:
                        writer.commit()
                        committed = time.monotonic()
                    bar.advance(sum(len(document.paragraphs) for document in batch))
            if not is_empty:
                for name in self._index.store.names_except(seen):
                    writer.remove(name)
                    self._counts["removed"] += 1
            writer.commit()
        finally:
            writer.close()
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

    def _batches(self, seen: set[int], *, is_empty: bool) -> Iterator[list[StoredDocument]]:
        """New and changed documents."""
        documents = (
            self._document(text, key, is_new=change == "added")
            for text, key, change in self._compared(seen, is_empty=is_empty)
            if change != "unchanged"
        )
        return grouped(documents, lambda document: len(document.paragraphs), _BATCH, _BATCH)

    def _document(self, document: NamedText, key: DocumentKey, *, is_new: bool) -> StoredDocument:
        stored, words = [], self._index.words
        names = f'{{"document": {_json(document.name)}, "title": {_json(document.title)}'
        for start, end in paragraphs(document.text, self._config.paragraph_chars):
            text = document.text[start:end]
            passage = f'{names}, "start": {start}, "end": {end}, "text": {_json(text)}}}'
            if document.title and not text.startswith(document.title):
                text = f"{document.title}\n{text}"
            stored.append(StoredParagraph(passage.encode(), words(text)))
        return StoredDocument(key, stored, is_new)


_json = json.JSONEncoder(ensure_ascii=False).encode


def _key(document: NamedText) -> DocumentKey:
    name = _framed(document.name)
    return DocumentKey(_hash(name), _hash(name + _framed(document.title) + _framed(document.text)))


def _framed(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return len(data).to_bytes(8, "little") + data


def _hash(framed: bytes) -> str:
    """128 bits, hexadecimal."""
    return blake2b(framed, digest_size=16).hexdigest()
