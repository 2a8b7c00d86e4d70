"""An index brought up to date with its documents."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from greenadapt.config import SampleBy
from greenadapt.inference.documents import Context, Names, read_texts
from greenadapt.inference.search.folder_store import FolderStore
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.paragraphs import paragraphs
from greenadapt.inference.search.store import Change, DocumentKey, Entry, Passage, StoreWriter
from greenadapt.progress import Progress, Silent
from greenadapt.storage.arrays import UInt64Array
from greenadapt.storage.files import Json
from greenadapt.workers import grouped

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

    def _contexts(self) -> Iterator[Context]:
        facts, names = self._index.facts, Names()
        how = facts.config.format, facts.config.fields, names
        by = self._sample_by if facts.config.sample_by == "line" else facts.config.sample_by
        for path, given in facts.documents.items():
            for context in read_texts(path, self._progress, *how, by):
                is_path = context.name.startswith(path)
                yield replace(context, name=given + context.name.removeprefix(path)) if is_path else context
        names.note_lines(self._progress)

    def _compared(self, seen: set[int], *, is_empty: bool) -> Iterator[tuple[Context, DocumentKey, Change]]:
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

    def _document(self, context: Context, key: DocumentKey, *, is_new: bool) -> _Document:
        entries, texts = [], []
        for start, end in paragraphs(context.text, self._config.paragraph_chars):
            text = context.text[start:end]
            searched = text if not context.title or text.startswith(context.title) else f"{context.title}\n{text}"
            passage = Passage(context.name, context.title, start, end, text)
            own = int(_hash(context.name, str(start), searched), 16) >> 65  # 63 bits, as tantivy reads them from Python
            entries.append(Entry(own, passage, " ".join(self._index.words(searched))))
            texts.append(searched)
        return _Document(key, entries, texts, is_new)

    def _write(self, batch: Sequence[_Document], writer: StoreWriter) -> None:
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

    def _remove_others(self, seen: set[int], writer: StoreWriter) -> None:
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
