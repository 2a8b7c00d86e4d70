"""An index of documents: how it is made, and the search in it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path

from greenadapt.config import Count, SampleBy
from greenadapt.corpus.text import Decoder
from greenadapt.fields import checked_call
from greenadapt.inference.entries import NamedText, Names, read_texts
from greenadapt.inference.search.paragraphs import paragraphs
from greenadapt.inference.search.store import TOKENIZER, FolderStore, FolderWriter, Passage, StoredParagraph
from greenadapt.inference.search.words import Words, in_normal_form, model_words, raw_words
from greenadapt.progress import Progress
from greenadapt.store.files import Json
from greenadapt.tokenization.vocabulary import load_tokenizer


def index_input(place: str) -> Json:
    """An index as an input in a manifest."""
    return FolderStore(place).result.as_input()


class Index:
    """An index that ``greenadapt index`` wrote.

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
        return self.store.search(self.words(query), top)

    @cached_property
    def words(self) -> Words:
        """Splits a paragraph or a query into the words that a search compares."""
        return words_of(self.store.folder)


def words_of(folder: Path) -> Words:
    """Splits text into words as the tokenizer in an index's ``folder`` does, or into runs of letters and digits."""
    is_plain = not (folder / TOKENIZER).is_file()
    return in_normal_form(raw_words if is_plain else model_words(load_tokenizer(folder / TOKENIZER)))


def write_index(
    work: Path,
    documents: Mapping[str, str],
    tokenizer: Path | None,
    settings: Json,
    sample_by: SampleBy | None,
    progress: Progress,
) -> Json:
    """Write an index into ``work``; returns the counts of ``documents`` and ``paragraphs``.

    ``documents`` are the absolute paths, each with the path that begins its documents' names; ``tokenizer`` is the
    folder of a model, ``sample_by`` the user's option for plain text.
    """
    writer = FolderWriter(work, tokenizer)
    words, counts = words_of(work), {"documents": 0, "paragraphs": 0}
    by = sample_by if settings["sample_by"] == "line" else settings["sample_by"]
    with progress.bar("index", None, "paragraphs") as bar:
        for text in _texts(documents, settings, by, progress):
            stored = _paragraphs(text, words, settings["paragraph_chars"])
            writer.put(stored)
            counts["documents"] += 1
            counts["paragraphs"] += len(stored)
            bar.advance(len(stored))
    writer.close()
    return counts


def _texts(
    documents: Mapping[str, str], settings: Json, sample_by: SampleBy | None, progress: Progress
) -> Iterator[NamedText]:
    names = Names()
    for path, prefix in documents.items():
        for text in read_texts(path, progress, settings["format"], settings["fields"], names, sample_by):
            is_renamed = path != prefix and text.name.startswith(path)
            yield replace(text, name=prefix + text.name.removeprefix(path)) if is_renamed else text
    names.note_lines(progress)


def _paragraphs(document: NamedText, words: Words, paragraph_chars: int) -> list[StoredParagraph]:
    stored = []
    names = f'{{"document": {_json(document.name)}, "title": {_json(document.title)}'
    for start, end in paragraphs(document.text, paragraph_chars):
        text = document.text[start:end]
        passage = f'{names}, "start": {start}, "end": {end}, "text": {_json(text)}}}'
        if document.title and not text.startswith(document.title):
            text = f"{document.title}\n{text}"
        stored.append(StoredParagraph(passage.encode(), words(text)))
    return stored


_json = json.JSONEncoder(ensure_ascii=False).encode
