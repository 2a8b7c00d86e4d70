"""The paragraphs of an index in tantivy, found by BM25: in a folder, or in memory for a single text.

The words, the texts and the states of documents all lie in it, so that nothing changes but by a commit of tantivy: a
killed process leaves the last commit.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from greenadapt.config import IndexConfig, SampleBy
from greenadapt.errors import (
    ConflictError,
    GreenadaptError,
    InputError,
    ResourceError,
    UsageError,
    counted,
    first_line,
    is_panic,
    require,
)
from greenadapt.inference.search.marks import FileMark
from greenadapt.inference.search.paragraphs import Span, paragraphs
from greenadapt.inference.search.words import Words, add_words, best, prepare
from greenadapt.storage.files import (
    beside,
    creating,
    expanded,
    hash_file,
    hash_json,
    parse_own,
    publish_folder,
    read_bounded,
    read_object,
    replace_json,
    write_json,
)
from greenadapt.storage.ownership import (
    INDEX,
    INDEX_FILE,
    is_index,
    new_folder,
    refuse_added,
    require_own,
)
from greenadapt.tokenization.vocabulary import tokenizer_json

if TYPE_CHECKING:
    import tantivy


AGAIN = "index again with --force"
_FORMAT = 2


@dataclass(frozen=True)
class IndexSettings:
    """``IndexConfig``, and how the documents are read."""

    paragraph_chars: int
    format: str | None
    fields: tuple[str, ...]
    sample_by: SampleBy


@dataclass(frozen=True)
class IndexModel:
    """The model whose tokenizer splits text into words."""

    source: str
    sha256: str


@dataclass(frozen=True)
class IndexFacts:
    """The sources and the settings of an index."""

    documents: dict[str, str]
    """Absolute path of each file or folder → the path as the user first wrote it, which begins its documents' names.
    """
    config: IndexSettings
    model: IndexModel | None = None
    counts: dict[str, int] | None = None
    """The counts of the last ``index`` that went through all documents; ``None`` before."""
    version: int = _FORMAT
    files: dict[str, FileMark] = field(default_factory=dict)
    """Size and checksums of the files in the folder, by path; of the words only while no ``index`` is at work."""
    sources: str | None = None
    """Hash of greenadapt's version and of the documents' files at that ``index``; ``None`` before."""
    seal: str | None = None
    """Hash of all other fields."""

    @classmethod
    def of(cls, content: bytes | str, place: str) -> "IndexFacts":
        """The facts in the ``content`` of ``place``; raises ``InputError`` if they are broken."""
        facts = parse_own(content, cls, place, AGAIN)
        if facts.version != _FORMAT:
            raise InputError(f"{place} has format version {facts.version}, this is {_FORMAT}", AGAIN)
        if facts.seal != facts.sealed().seal:
            raise InputError(f"{place} was changed since index wrote it, or is damaged: its checksum differs", AGAIN)
        return facts

    def sealed(self) -> "IndexFacts":
        """The facts with their ``seal``."""
        return replace(self, seal=hash_json(asdict(replace(self, seal=None))))


Change = Literal["added", "changed", "unchanged"]
"""The difference of a document to the index."""


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


class DocumentKey(NamedTuple):
    """Hexadecimal hashes of a document: of its name, and of its name with its content."""

    name: str
    state: str


class StoredDocument(NamedTuple):
    """A document that is new or changed."""

    key: DocumentKey
    paragraphs: Sequence[StoredParagraph]
    is_new: bool


WORDS, TOKENIZER = "words", "tokenizer.json"
"""Folder of tantivy's index, and the tokenizer that splits text into words."""
_WRITER_MEMORY = 64 << 20
"""Bytes of postings that tantivy keeps in memory before it writes a segment."""
_NAMED = 3
"""Damaged files that a message names."""
_HEX = "0123456789abcdef"
_COMMITTED, _LOCK = "meta.json", ".tantivy-meta.lock"
_DELETIONS = re.compile(r"(?P<segment>[0-9a-f]{32})\.[0-9]+\.del")


def _schema() -> "tantivy.Schema":
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("state", tokenizer_name="raw", index_option="basic")
    add_words(builder)
    builder.add_bytes_field("passage", stored=True)
    return builder.build()


class FolderStore:
    """The paragraphs of an index in its folder; several processes may read it while one writes.

    Raises ``MissingError`` if a package is missing, ``UsageError`` for an address, which is no folder.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        if fspath(folder).startswith(("http://", "https://")):
            raise UsageError(f"{fspath(folder)} is an address, an index is a folder", "give the one that index wrote")
        require("search", "tantivy", by="a search")
        self.folder = expanded(folder).absolute()
        self.place = str(self.folder)
        self._words = self.folder / WORDS
        self._committed = self._words / _COMMITTED
        self._commit = (0, 0)
        self._searcher: tantivy.Searcher | None = None
        self._parsed: tuple[tuple[int, int], IndexFacts] | None = None
        """The facts that were read last, and the version of their file, which is never changed but replaced."""
        self._checked: IndexFacts | None = None
        self._marks: dict[str, FileMark] = {}
        """Marks of tantivy's files, of which most never change, so that they are read once."""

    def facts(self) -> IndexFacts | None:
        """The facts in ``index.json``, ``None`` without it; raises ``InputError`` naming a missing or damaged file.

        Of large files only the ends are compared: ``require_whole`` compares everything.
        """
        facts = self._read()
        while facts is not None and facts != self._checked:
            differences = self._differences(facts, whole=False)
            before, facts = facts, self._read()
            if facts != before:
                continue  # another process wrote to the index meanwhile
            if differences:
                raise self._damaged(differences)
            self._checked = facts
        if facts is not None:
            self._refreshed()
        return facts

    def require_whole(self) -> None:
        """Raise ``InputError`` naming every file that is missing, or that differs anywhere from what was written."""
        facts = self._read()
        if facts is not None and (differences := self._differences(facts, whole=True)):
            raise self._damaged(differences)
        self._marks = {} if facts is None else {**facts.files}

    def _read(self) -> IndexFacts | None:
        file = self.folder / INDEX_FILE
        version = _version(file)
        if version == (0, 0):
            return None
        if self._parsed is None or version != self._parsed[0]:
            if not is_index(self.folder):
                hint = "check the path, or remove the folder and index again"
                raise InputError(f"{self.folder} is no index: greenadapt did not write its {INDEX_FILE}", hint)
            self._parsed = version, IndexFacts.of(read_bounded(file, AGAIN), str(file))
        return self._parsed[1]

    def _differences(self, facts: IndexFacts, *, whole: bool) -> list[str]:
        marks = facts.files.items()
        differences = ((name, mark.difference(self.folder / name, whole=whole)) for name, mark in marks)
        return [f"{name} {difference}" for name, difference in differences if difference]

    def _damaged(self, differences: Sequence[str]) -> InputError:
        n_more = len(differences) - _NAMED
        end = f", and {counted(n_more, 'more file')}" if n_more > 0 else ""
        return InputError(f"{self.place} is damaged: {'; '.join(differences[:_NAMED])}{end}", AGAIN)

    def create(self, facts: IndexFacts, tokenizer: Path | None) -> None:
        """Put an empty index in place of what is there, all of it at once, with the tokenizer of this model's folder.

        Raises ``ConflictError`` if something else is there.
        """
        import tantivy

        folder = self.folder
        self.require_replaceable()
        work = beside(folder, "new")
        with creating(folder):
            new_folder(work, of=INDEX)
            (work / WORDS).mkdir()
        if tokenizer is not None:
            (work / TOKENIZER).write_bytes(tokenizer_json(tokenizer))
        tantivy.Index(_schema(), str(work / WORDS))
        files = {} if tokenizer is None else {TOKENIZER: FileMark.of(work / TOKENIZER)}
        write_json(work / INDEX_FILE, asdict(replace(facts, files=files).sealed()))
        publish_folder(work, folder)

    def require_replaceable(self) -> None:
        """Raise ``ConflictError`` unless the folder is missing, empty or an index with no file of anybody else."""
        folder = self.folder
        if folder.exists() and not is_index(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise ConflictError(f"{folder} is there already, and is no index", "choose another folder")
        if folder.is_dir():
            refuse_added(folder)
        for suffix in ("new", "old"):
            require_own(beside(folder, suffix))

    def write_facts(self, facts: IndexFacts) -> None:
        """Replace ``index.json`` at once, with the marks of the files: also of those of the words if ``facts`` have
        counts, since tantivy changes them in the background while documents are written.
        """
        current = self._read()
        assert current is not None  # as there is an index
        files = {name: mark for name, mark in current.files.items() if not name.startswith(f"{WORDS}/")}
        if facts.counts is not None:
            files |= self._marks_of_words()
        replace_json(self.folder / INDEX_FILE, asdict(replace(facts, files=files).sealed()))
        self._parsed = None

    def _marks_of_words(self) -> dict[str, FileMark]:
        marks = {}
        for path in sorted(self._words.iterdir()):
            if path.is_file() and path.suffix not in (".lock", ".part"):
                name = f"{WORDS}/{path.name}"
                mark = None if path.suffix == ".json" else self._marks.get(name)
                marks[name] = mark or FileMark.of(path)
        return marks

    def state(self) -> str:
        """A hash of ``index.json`` and of tantivy's last commit."""
        return hash_json([hash_file(self.folder / INDEX_FILE), hash_file(self._committed)])

    def __len__(self) -> int:
        """How many paragraphs were committed."""
        return int(self._refreshed().num_docs)

    def search(self, words: str, top: int) -> list[Passage]:
        """The ``top`` best by BM25 (k1 1.2, b 0.75) for words with spaces between, best first; each counts once."""
        searcher = self._refreshed()
        with self.reading():
            hits = best(self.index, searcher, words, top)
            passages = self._passages(searcher, [address for _, address in hits])
        scored = [passage.scored(score) for passage, (score, _) in zip(passages, hits, strict=True)]
        return sorted(scored, key=lambda passage: (-passage.score, passage.document, passage.start))

    def changes(self, documents: Sequence[DocumentKey]) -> list[Change]:
        """The difference of each document to what was committed."""
        searcher = self._refreshed()
        with self.reading():
            return [
                "unchanged"
                if self._has(searcher, "state", key.state)
                else "changed"
                if self._has(searcher, "name", key.name)
                else "added"
                for key in documents
            ]

    def names_except(self, seen: Set[int]) -> Iterator[str]:
        """The hashed names of the documents whose names, as numbers, are not in ``seen``."""
        searcher = self._refreshed()
        with self.reading():
            for first in _HEX:  # a part at a time, to bound memory
                names = (name for name, _ in searcher.terms_with_prefix("name", first) if int(name, 16) not in seen)
                yield from (name for name in names if self._has(searcher, "name", name))

    @cached_property
    def index(self) -> "tantivy.Index":
        """The index of tantivy."""
        import tantivy

        with self.reading():
            index = tantivy.Index.open(str(self._words))
            index.config_reader("manual")
            prepare(index)
            return index

    def forget_deletions(self) -> None:
        """Remove the lists of deletions of a writer that was killed before its commit.

        tantivy names them after the number of the operation, so that the next writer could not write its own.
        """
        with self.reading():
            segments = read_object(self._committed, "index of tantivy", AGAIN)["segments"]
            deletes = {segment["segment_id"].replace("-", ""): segment["deletes"] for segment in segments}
            committed = {f"{name}.{deleted['opstamp']}.del" for name, deleted in deletes.items() if deleted}
        for file in self._words.glob("*.del"):
            name = _DELETIONS.fullmatch(file.name)
            if name and name["segment"] in deletes and file.name not in committed:
                file.unlink()

    def share(self) -> None:
        """Let everyone search who may read ``index.json``.

        tantivy writes two files for their owner alone, and opens its lock for writing, even to read.
        """
        mode = (self.folder / INDEX_FILE).stat().st_mode & 0o777
        for name, allowed in ((_COMMITTED, mode), (".managed.json", mode), (_LOCK, mode | (mode & 0o444) >> 1)):
            with suppress(OSError):  # those of another user, who writes to the same index
                (self._words / name).chmod(allowed)

    def _refreshed(self) -> "tantivy.Searcher":
        """A searcher of all that was committed until now."""
        commit = _version(self._committed)
        if self._searcher is None or commit != self._commit:
            index = self.index
            with self.reading():
                try:
                    index.reload()
                    self._searcher, self._commit = index.searcher(), commit
                except ValueError as error:
                    # Until its writer calls ``share``, a new commit may not be readable.
                    if self._searcher is None or not _is_refused(error):
                        raise
        return self._searcher

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise ``InputError`` for any error of tantivy, which expects whole files."""
        try:
            yield
        except (GreenadaptError, OSError, MemoryError):
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise self.unusable(error) from None

    def unusable(self, error: BaseException) -> InputError:
        """The error to raise where tantivy raised ``error``."""
        if _is_refused(error):
            hint = "let its owner run greenadapt index again, or copy the folder"
            return InputError(f"{self._words} may not be read and locked by this user", hint)
        facts = self._read()
        if facts is not None and (differences := self._differences(facts, whole=True)):
            return self._damaged(differences)
        return InputError(f"{self._words} is not an index of tantivy, or is damaged ({first_line(error)})", AGAIN)

    def _passages(self, searcher: "tantivy.Searcher", addresses: Iterable["tantivy.DocAddress"]) -> list[Passage]:
        stored = b",".join(searcher.doc(address)["passage"][0] for address in addresses)
        return parse_own(b"[%s]" % stored, list[Passage], self._words, AGAIN)

    def _has(self, searcher: "tantivy.Searcher", field: str, value: str) -> bool:
        """Whether a paragraph has that value; terms of removed ones stay until segments are merged."""
        import tantivy

        if not searcher.doc_freq(field, value):
            return False
        query = tantivy.Query.term_query(self.index.schema, field, value, "basic")
        result: Any = searcher.search(query, 1)  # the stubs lack ``count``
        return int(result.count) > 0


def _version(file: Path) -> tuple[int, int]:
    """Changes when a file is replaced; zeros without a file."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    return status.st_mtime_ns, status.st_ino


def _is_refused(error: BaseException) -> bool:
    """Whether the operating system refused; tantivy has one error for all reasons."""
    return any(kind in str(error) for kind in ("PermissionDenied", "ReadOnlyFilesystem"))


class FolderWriter:
    """Changes to an index, which all take effect at ``commit``. There is one writer at a time; it must be closed."""

    def __init__(self, store: FolderStore) -> None:
        import tantivy

        store.forget_deletions()
        self._store = store
        self._document = tantivy.Document
        with store.reading():
            self._writer = store.index.writer(_WRITER_MEMORY, 1)

    def put(self, documents: Iterable[StoredDocument]) -> None:
        """Put the paragraphs of documents in place of those that they have."""
        with self._written():
            for document in documents:
                if not document.is_new:
                    self.remove(document.key.name)
                for paragraph in document.paragraphs:
                    fields = self._document()
                    fields.add_text("name", document.key.name)
                    fields.add_text("state", document.key.state)
                    fields.add_text("words", paragraph.words)
                    fields.add_bytes("passage", paragraph.passage)
                    self._writer.add_document(fields)

    def remove(self, name: str) -> None:
        """Take out all paragraphs that were added before of the document of this hashed name."""
        self._writer.delete_documents_by_term("name", name)

    def commit(self) -> None:
        """Make all changes so far last, and visible, at once."""
        with self._written():
            self._writer.commit()
        self._store.share()

    def close(self) -> None:
        """Wait until segments are merged."""
        with self._written():
            self._writer.wait_merging_threads()
        self._store.share()

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Raise ``ResourceError`` if the folder cannot be written; tantivy has one error for all reasons."""
        try:
            yield
        except BaseException as error:
            if is_panic(error):
                raise self._store.unusable(error) from None
            if not isinstance(error, ValueError):
                raise
            raise ResourceError(
                f"{self._store.place} cannot be written, the disk may be full ({error})",
                "free some space; the same command resumes",
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
