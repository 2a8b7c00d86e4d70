"""Make an index of documents, and search it by BM25."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from greenadapt.config import Count, SampleBy
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, ResourceError, first_line, require
from greenadapt.fields import validate_arguments
from greenadapt.inference.entries import NamedText, Names, read_texts
from greenadapt.inference.search.paragraphs import paragraphs
from greenadapt.inference.search.store import Passage
from greenadapt.inference.search.words import Words, add_words, find_best, prepare, words_of
from greenadapt.progress import Progress
from greenadapt.store.files import Json, expand_home, parse_own
from greenadapt.store.results import Result, open_result, verify_result
from greenadapt.tokenization.vocabulary import tokenizer_json

if TYPE_CHECKING:
    import tantivy


INDEX = "index"
"""The stage that makes an index."""
_WORDS, _TOKENIZER = "words", "tokenizer.json"
"""Folder of tantivy's index, and the tokenizer that splits text into words."""
_WRITER_MEMORY = 64 << 20
"""Bytes of postings that tantivy keeps in memory before it writes a segment."""
_COMMITTED, _MANAGED, _LOCK = "meta.json", ".managed.json", ".tantivy-meta.lock"


def open_index(place: str | PathLike[str]) -> Result:
    """The result of an index, whose files are those of its manifest.

    Raises ``MissingError`` if there is no index, ``InputError`` if a file of it is missing or damaged.
    """
    return verify_result(open_result(expand_home(place).absolute(), INDEX))


class Index:
    """An index that ``greenadapt index`` wrote.

    Raises ``MissingError`` if there is no index or a package is missing, ``InputError`` if it is damaged.

    Examples:
        >>> index = greenadapt.Index("papers.index")
        >>> index.search("incubation period of the virus", top=3)[0].document
        'PMC7095418.xml'
    """

    @validate_arguments
    def __init__(self, place: str | PathLike[str]) -> None:
        require("search", "tantivy", by="a search")
        self._folder = open_index(place).folder
        self.place = str(self._folder)
        """The index's folder."""

    def __repr__(self) -> str:
        return f"Index({self.place!r})\n  {len(self):,} paragraphs"

    def __len__(self) -> int:
        """How many paragraphs it has."""
        return int(self._searcher.num_docs)

    @validate_arguments
    def search(self, query: str, top: Count = 10) -> list[Passage]:
        """The ``top`` best paragraphs for a query, best first.

        They are ranked by the words of title and paragraph: Okapi BM25 with k1 1.2 and b 0.75 (Robertson and Zaragoza,
        2009, doi 10.1561/1500000019), which is the ``score``.

        A lone surrogate in the query is replaced by U+FFFD. Raises ``UsageError`` for an argument that is not allowed.
        """
        query = Decoder().replace_surrogates(query, "query")
        hits = find_best(self._index, self._searcher, self._words(query), top)
        passages = []
        for score, address in hits:
            stored = self._searcher.doc(address)["passage"][0]
            passage = parse_own(stored, Passage, self._folder / _WORDS, "remove the index, and make it again")
            passages.append(replace(passage, score=score))
        return sorted(passages, key=lambda passage: (-passage.score, passage.document, passage.start))

    @cached_property
    def _words(self) -> Words:
        return _words_of_index(self._folder)

    @cached_property
    def _index(self) -> "tantivy.Index":
        import tantivy

        words = self._folder / _WORDS
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


def _words_of_index(folder: Path) -> Words:
    """Splits text into words as the tokenizer in an index's ``folder`` does, if it has one."""
    tokenizer = folder / _TOKENIZER
    return words_of(tokenizer if tokenizer.is_file() else None)


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
    folder of a model, ``sample_by`` the user's option for plain text. Raises ``ResourceError`` if the disk is full.
    """
    import tantivy

    (work / _WORDS).mkdir()
    if tokenizer is not None:
        (work / _TOKENIZER).write_bytes(tokenizer_json(tokenizer))
    schema = tantivy.SchemaBuilder()
    add_words(schema)
    schema.add_bytes_field("passage", stored=True)
    with _writing(work):
        index = tantivy.Index(schema.build(), str(work / _WORDS))
        prepare(index)
        writer = index.writer(_WRITER_MEMORY, 1)
    words, counts = _words_of_index(work), {"documents": 0, "paragraphs": 0}
    by = sample_by if settings["sample_by"] == "line" else settings["sample_by"]
    with progress.bar("index", None, "paragraphs") as bar:
        for text in _texts(documents, settings, by, progress):
            counts["documents"] += 1
            for passage, searched in _passages(text, settings["paragraph_chars"]):
                fields = tantivy.Document()
                fields.add_text("words", words(searched))
                fields.add_bytes("passage", passage)
                try:  # a context manager would take as long as what it guards
                    writer.add_document(fields)
                except ValueError as error:
                    raise _write_error(work, error) from None
                counts["paragraphs"] += 1
                bar.advance(1)
    with _writing(work):
        writer.commit()
        writer.wait_merging_threads()
    _let_others_search(work)
    return counts


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Raise ``ResourceError`` if the folder cannot be written; tantivy has one error for all reasons."""
    try:
        yield
    except ValueError as error:
        raise _write_error(folder, error) from None


def _write_error(folder: Path, error: ValueError) -> ResourceError:
    return ResourceError(f"{folder} cannot be written, the disk may be full ({error})", "free some space")


def _let_others_search(work: Path) -> None:
    """Let everyone search who may read the folder: tantivy writes two files for their owner alone, and opens its lock
    for writing, even to read.
    """
    mode = work.stat().st_mode & 0o666
    for name, allowed in ((_COMMITTED, mode), (_MANAGED, mode), (_LOCK, mode | (mode & 0o444) >> 1)):
        with suppress(FileNotFoundError):
            (work / _WORDS / name).chmod(allowed)


def _texts(
    documents: Mapping[str, str], settings: Json, sample_by: SampleBy | None, progress: Progress
) -> Iterator[NamedText]:
    names = Names()
    for path, prefix in documents.items():
        for text in read_texts(path, progress, settings["format"], settings["fields"], names, sample_by):
            is_renamed = path != prefix and text.name.startswith(path)
            yield replace(text, name=prefix + text.name.removeprefix(path)) if is_renamed else text


def _passages(document: NamedText, paragraph_chars: int) -> Iterator[tuple[bytes, str]]:
    """Each paragraph as a ``Passage`` without its score, in JSON, and the text of title and paragraph."""
    names = f'{{"document":{_json(document.name)},"title":{_json(document.title)}'
    for start, end in paragraphs(document.text, paragraph_chars):
        text = document.text[start:end]
        passage = f'{names},"start":{start},"end":{end},"text":{_json(text)}}}'
        has_title = not document.title or text.startswith(document.title)
        yield passage.encode(), text if has_title else f"{document.title}\n{text}"


_json = json.encoder.encode_basestring
