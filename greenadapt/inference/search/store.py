"""The paragraphs of an index in tantivy, found by BM25: in a folder, or in memory for a single text.

What is searched, what is shown and what is in the index already all lie in it, so that a commit of tantivy is the only
moment at which anything changes: a process that is killed leaves what was committed last.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tokenizers import Tokenizer

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
    publish_folder,
    read_bounded,
    read_object,
    replace_json,
    write_json,
)
from greenadapt.storage.own_json import parse_own, parse_own_object
from greenadapt.storage.ownership import (
    INDEX,
    INDEX_FILE,
    is_index,
    is_noted,
    new_folder,
    read_mark,
    refuse_added,
    require_own,
    write_mark,
)
from greenadapt.storage.results import FORMAT
from greenadapt.tokenization.vocabulary import load_tokenizer, tokenizer_json

if TYPE_CHECKING:
    import tantivy


AGAIN = "index again with --force"


@dataclass(frozen=True)
class IndexSettings:
    """``IndexConfig``, and how the documents are read."""

    vectors: bool
    paragraph_chars: int
    format: str | None
    fields: tuple[str, ...]
    sample_by: SampleBy = "document"
    """In indexes of version 0.2.0 a file of plain text is one document."""


@dataclass(frozen=True)
class IndexModel:
    """The model that splits text into words, and that makes the vectors."""

    source: str
    sha256: str


@dataclass(frozen=True)
class IndexFacts:
    """What an index was made from, and how."""

    documents: dict[str, str]
    """Absolute paths of files and folders, and what each was first given as, which its documents are called by."""
    config: IndexSettings
    model: IndexModel | None = None
    counts: dict[str, int] | None = None
    """What ``index`` counted when it last went through all documents; ``None`` until then."""
    version: int = FORMAT
    normal_form: Literal["NFC"] | None = None
    """The Unicode form of the words; ``None`` in indexes of version 0.2.0, whose words are as in the text."""
    files: dict[str, FileMark] | None = None
    """Size and checksums of the files in the folder, by path; ``None`` in indexes of version 0.2.0. Those of the words
    are there only while no ``index`` is at work.
    """
    seal: str | None = None
    """Hash of all else, where ``files`` are there."""

    @classmethod
    def of(cls, content: bytes | str, place: str) -> "IndexFacts":
        """Those in the ``content`` of ``place``; raises ``InputError`` if they are broken, or of a search server."""
        facts = parse_own(content, cls, place, AGAIN)
        if parse_own_object(content, dict[str, Any], place, AGAIN)["config"].get("shards") is not None:
            raise InputError(f"{place} is that of an index on a search server, greenadapt reads folders only", AGAIN)
        if facts.version != FORMAT:
            raise InputError(f"{place} has format version {facts.version}, this is {FORMAT}", AGAIN)
        if facts.seal != (None if facts.files is None else facts.sealed().seal):
            raise InputError(f"{place} was changed since index wrote it, or is damaged: its checksum differs", AGAIN)
        return facts

    def sealed(self) -> "IndexFacts":
        """The same with its ``seal``."""
        return replace(self, seal=hash_json(asdict(replace(self, seal=None))))


Change = Literal["added", "changed", "unchanged"]
"""What a document is, compared with an index."""


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

    def stored(self) -> dict[str, Any]:
        """Its fields but for the score."""
        return {name: value for name, value in asdict(self).items() if name != "score"}


@dataclass(frozen=True)
class Entry:
    """A paragraph as it is stored."""

    key: int
    """Of 63 bits: its id, and that of its vector."""
    passage: Passage
    words: str
    """What it is found by, separated by spaces."""


@dataclass(frozen=True)
class DocumentKey:
    """Hexadecimal hashes of a document: of its name, and of its name with its content."""

    name: str
    state: str


def in_order(passages: Iterable[Passage]) -> list[Passage]:
    """The best first; equal ones by their place."""
    return sorted(passages, key=lambda one: (-one.score, one.document, one.start))


WORDS, VECTORS, TOKENIZER = "words", "vectors", "tokenizer.json"
"""Folders of the two indexes, and the tokenizer that splits text into words."""
_WRITER_MEMORY = 64 << 20
"""Bytes of postings that tantivy keeps in memory before it writes a segment."""
_NAMED = 3
"""Damaged files that a message names."""
_BLOCK = 4096
"""Keys that are looked up at once."""
_HEX = "0123456789abcdef"
_COMMITTED, _LOCK = "meta.json", ".tantivy-meta.lock"
_DELETIONS = re.compile(r"(?P<segment>[0-9a-f]{32})\.[0-9]+\.del")


def _schema() -> "tantivy.Schema":
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("state", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("key", indexed=True, fast=True)
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
        require("search", "tantivy", "usearch", by="a search")
        self.folder = expanded(folder).absolute()
        self.place = str(self.folder)
        self._words = self.folder / WORDS
        self._seen = (0, 0)
        self._searcher: tantivy.Searcher | None = None
        self._checked: IndexFacts | None = None
        self._known: dict[str, FileMark] = {}
        """Marks of tantivy's files that never change, so that they are read once."""

    def facts(self) -> IndexFacts | None:
        """Those in ``index.json``, ``None`` without it; raises ``InputError`` naming a file that is missing or damaged.

        Of large files only the ends are compared: ``require_whole`` compares everything.
        """
        facts = self._read()
        while facts is not None and facts != self._checked:
            wrong = self._differences(facts, whole=False)
            again = self._read()
            if wrong and again == facts:
                raise self._damaged(wrong)
            if again == facts:
                self._checked = facts
            facts = again  # another process wrote to the index meanwhile
        if facts is not None:
            self._refreshed()
        return facts

    def require_whole(self) -> None:
        """Raise ``InputError`` naming every file that is missing, or that differs anywhere from what was written."""
        facts = self._read()
        if facts is not None and (wrong := self._differences(facts, whole=True)):
            raise self._damaged(wrong)
        self._known = {} if facts is None else {**(facts.files or {})}

    def _read(self) -> IndexFacts | None:
        file = self.folder / INDEX_FILE
        if not file.is_file():
            return None
        if not is_index(self.folder):
            raise InputError(f"{self.folder} is no index: greenadapt did not write its {INDEX_FILE}", "check the path")
        return IndexFacts.of(read_bounded(file, AGAIN), str(file))

    def _differences(self, facts: IndexFacts, *, whole: bool) -> list[str]:
        found = ((name, mark.difference(self.folder / name, whole=whole)) for name, mark in (facts.files or {}).items())
        return [f"{name} {difference}" for name, difference in found if difference]

    def _damaged(self, wrong: Sequence[str]) -> InputError:
        more = f", and {counted(len(wrong) - _NAMED, 'more file')}" if len(wrong) > _NAMED else ""
        return InputError(f"{self.place} is damaged: {'; '.join(wrong[:_NAMED])}{more}", AGAIN)

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
            for name in (WORDS, VECTORS):
                (work / name).mkdir()
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
        for what in ("new", "old"):
            require_own(beside(folder, what))

    def write_facts(self, facts: IndexFacts) -> None:
        """Replace ``index.json`` at once, with the marks of the files: also of those of the words if ``facts`` have
        counts, since tantivy changes them in the background while documents are written.
        """
        current = self._read()
        if current is not None and current.files is not None:
            files = {name: mark for name, mark in current.files.items() if not name.startswith(f"{WORDS}/")}
        else:  # of version 0.2.0
            names = [*self.folder.glob(TOKENIZER), *(self.folder / VECTORS).glob("*.usearch")]
            files = {path.relative_to(self.folder).as_posix(): FileMark.of(path) for path in sorted(names)}
        if facts.counts is not None:
            files |= self._marks_of_words()
        self._write(replace(facts, files=files))

    def vector_marks(self) -> dict[str, FileMark] | None:
        """The marks of the files of vectors by name; ``None`` in an index of version 0.2.0, which has none."""
        facts = self._read()
        if facts is None or facts.files is None:
            return None
        begin = f"{VECTORS}/"
        return {name.removeprefix(begin): mark for name, mark in facts.files.items() if name.startswith(begin)}

    def record_vectors(self, added: Mapping[str, FileMark], removed: Iterable[str]) -> None:
        """Let the index have other files of vectors."""
        facts = self._read()
        if facts is None or facts.files is None:
            return
        gone = {f"{VECTORS}/{name}" for name in removed}
        files = {name: mark for name, mark in facts.files.items() if name not in gone}
        self._write(replace(facts, files=files | {f"{VECTORS}/{name}": mark for name, mark in added.items()}))

    def note_vectors(self, name: str) -> None:
        """Note in the index's mark that the file ``name`` of vectors is written, beside those that there are."""
        files = {f"{VECTORS}/{file}": mark.bytes for file, mark in (self.vector_marks() or {}).items()}
        mark = {"of": INDEX, **(read_mark(self.folder) or {})}
        write_mark(self.folder, **{**mark, "files": {**files, f"{VECTORS}/{name}": None}})

    def has_noted(self, path: Path) -> bool:
        """Whether the index's mark notes this file, and nobody has replaced it since."""
        return is_noted(path, self.folder)

    def _write(self, facts: IndexFacts) -> None:
        replace_json(self.folder / INDEX_FILE, asdict(facts.sealed()))

    def _marks_of_words(self) -> dict[str, FileMark]:
        marks = {}
        for path in sorted(self._words.iterdir()):
            if path.is_file() and path.suffix not in (".lock", ".part"):
                name = f"{WORDS}/{path.name}"
                known = None if path.suffix == ".json" else self._known.get(name)
                marks[name] = known or FileMark.of(path)
        return marks

    def tokenizer(self) -> Tokenizer:
        """The one in ``tokenizer.json``."""
        return load_tokenizer(self.folder / TOKENIZER)

    def state(self) -> str:
        """A hash of ``index.json`` and of tantivy's last commit."""
        return hash_json([hash_file(self.folder / INDEX_FILE), hash_file(self._words / _COMMITTED)])

    def __len__(self) -> int:
        """How many paragraphs were committed."""
        return int(self._refreshed().num_docs)

    def search(self, words: Iterable[str], top: int) -> list[Passage]:
        """The ``top`` best by BM25 (k1 1.2, b 0.75), best first; each word counts once."""
        searcher = self._refreshed()
        with self.reading():
            hits = best(self.index, searcher, words, top)
            return in_order(replace(self._passage(searcher, at), score=score) for score, at in hits)

    def passages(self, keys: Iterable[int]) -> Mapping[int, Passage]:
        """The paragraphs of those keys that are in the index."""
        searcher = self._refreshed()
        with self.reading():
            return {key: self._passage(searcher, at) for key, at in self._addresses(searcher, list(keys)).items()}

    def known(self, keys: Sequence[int]) -> set[int]:
        """Those of ``keys`` that are in the index."""
        searcher = self._refreshed()
        blocks = (keys[at : at + _BLOCK] for at in range(0, len(keys), _BLOCK))
        with self.reading():
            return {key for block in blocks for key in self._addresses(searcher, block)}

    def changes(self, documents: Sequence[DocumentKey]) -> list[Change]:
        """What each document is, compared with what was committed: each was as a whole."""
        return [
            "unchanged" if self._has("state", one.state) else "changed" if self._has("name", one.name) else "added"
            for one in documents
        ]

    def names(self) -> Iterator[str]:
        """The hashed names of all documents."""
        searcher = self._refreshed()
        for first in _HEX:  # a part at a time, to bound memory
            with self.reading():
                terms = searcher.terms_with_prefix("name", first)
            for name, _ in terms:
                if self._has("name", name):  # terms of removed documents stay until segments are merged
                    yield name

    def writer(self) -> "FolderWriter":
        """The one writer; it must be closed."""
        return FolderWriter(self)

    @cached_property
    def index(self) -> "tantivy.Index":
        """That of tantivy."""
        import tantivy

        with self.reading():
            index = tantivy.Index.open(str(self._words))
            index.config_reader("manual")
            prepare(index)
            return index

    def forget_deletions(self) -> None:
        """Remove files that say what a writer deleted that was killed before its commit.

        tantivy names them after the number of the operation, so that the next writer could not write its own.
        """
        with self.reading():
            segments = read_object(self._words / _COMMITTED, "index of tantivy", AGAIN)["segments"]
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
        """What searches in all that was committed until now."""
        committed = self._words / _COMMITTED
        found = committed.stat() if committed.is_file() else None
        now = (found.st_mtime_ns, found.st_ino) if found else (0, 0)
        if self._searcher is None or now != self._seen:
            index = self.index
            with self.reading():
                try:
                    index.reload()
                    self._searcher, self._seen = index.searcher(), now
                except ValueError as error:
                    # Until its writer calls ``share``, a new commit may not be readable.
                    if self._searcher is None or not _is_refused(error):
                        raise
        return self._searcher

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Raise ``InputError`` for whatever tantivy raises, or what is read through it is: it expects whole files."""
        try:
            yield
        except (GreenadaptError, OSError, MemoryError):
            raise
        except BaseException as error:
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise self.unusable(error) from None

    def unusable(self, error: BaseException) -> InputError:
        """What is said where tantivy raised ``error``."""
        if _is_refused(error):
            hint = "let its owner run greenadapt index again, or copy the folder"
            return InputError(f"{self._words} may not be read and locked by this user", hint)
        facts = self._read()
        wrong = [] if facts is None else self._differences(facts, whole=True)
        if wrong:
            return self._damaged(wrong)
        return InputError(f"{self._words} is not an index of tantivy, or is damaged ({first_line(error)})", AGAIN)

    def _passage(self, searcher: "tantivy.Searcher", address: "tantivy.DocAddress") -> Passage:
        return parse_own(searcher.doc(address)["passage"][0], Passage, self._words, AGAIN)

    def _addresses(self, searcher: "tantivy.Searcher", keys: Sequence[int]) -> dict[int, "tantivy.DocAddress"]:
        import tantivy

        query = tantivy.Query.term_set_query(self.index.schema, "key", keys)
        addresses = [at for _, at in searcher.search(query, max(1, len(keys)), count=False).hits]
        found = searcher.fast_field_values("key", addresses)
        return {int(key or 0): at for key, at in zip(found, addresses, strict=True)}

    def _has(self, field: str, value: str) -> bool:
        import tantivy

        query = tantivy.Query.term_query(self.index.schema, field, value, "basic")
        searcher = self._refreshed()
        with self.reading():
            found: Any = searcher.search(query, 1)  # the stubs lack ``count``
            return int(found.count) > 0


def _is_refused(error: BaseException) -> bool:
    """Whether the operating system refused; tantivy has one error for all reasons."""
    return any(kind in str(error) for kind in ("PermissionDenied", "ReadOnlyFilesystem"))


class FolderWriter:
    """Changes to an index, which all take effect at ``commit``."""

    def __init__(self, store: FolderStore) -> None:
        import tantivy

        store.forget_deletions()
        self._store = store
        self._schema = store.index.schema
        self._document = tantivy.Document
        with store.reading():
            self._writer = store.index.writer(_WRITER_MEMORY, 1)

    def put(self, document: DocumentKey, entries: Sequence[Entry], *, is_new: bool) -> None:
        """Put a document's paragraphs in place of those that it has, if it is not new."""
        if not is_new:
            self.remove(document.name)
        for entry in entries:
            fields = {
                "name": document.name,
                "state": document.state,
                "key": entry.key,
                "words": entry.words,
                "passage": json.dumps(entry.passage.stored(), ensure_ascii=False).encode(),
            }
            with self._written():
                self._writer.add_document(self._document.from_dict(fields, self._schema))

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
                "free some space; the same command goes on",
            ) from None


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
