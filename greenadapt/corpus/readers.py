"""Read documents from files: select the reader of a format, and read plain text, JSON lines, CSV and TSV."""

import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, takewhile
from pathlib import Path
from typing import IO, Any

from greenadapt.config import SampleBy
from greenadapt.corpus import articles, pydocs
from greenadapt.corpus.download import is_fetched, local_path, require_folders
from greenadapt.corpus.opening import (
    SEPARATORS,
    STDIN,
    data_suffix,
    is_hidden,
    is_read_once,
    is_tar,
    open_binary,
    open_input,
    open_member,
    path_sha256,
    squeeze,
    visible_files,
)
from greenadapt.corpus.recipes import Recipe, format_of
from greenadapt.corpus.rows import Lines, json_rows, parse_json, table_rows
from greenadapt.corpus.text import (
    MAX_DOCUMENT_BYTES,
    Decoder,
    Document,
    tar_members,
)
from greenadapt.errors import InputError, MissingError, json_kind, list_names, pluralize
from greenadapt.progress import Progress
from greenadapt.store.files import Json
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.tokenization.words import WORD_CATEGORIES


def _files_in(path: str, decoder: Decoder) -> Iterator[tuple[str, AbstractContextManager[IO[bytes]]]]:
    """Yield the name and what opens it of a file, or of each file in a folder, in order of path, or in an archive.

    Leaves out hidden files, and counts symlinks to folders and to missing files as skipped.
    """
    if Path(path).is_dir():
        for file in visible_files(Path(path)):
            if file.is_file():
                yield from _files_in(str(file), decoder)
            elif file.is_symlink():
                decoder.skip_file(f"{file} (a link)")
    elif is_tar(path):
        with open_binary(path) as stream:
            for name, content in tar_members(stream, path):
                if not is_hidden(name):
                    yield f"{path}:{name}", open_member(content, f"{path}:{name}")
    else:
        yield path, open_binary(path)


def warn_skipped(name: str, decoder: Decoder, progress: Progress) -> None:
    """Warn about the files of unknown kinds that were skipped in the folder or archive ``name``."""
    if skipped := decoder.skipped_files():
        progress.warn(f"{name}: skipped {skipped}; for text give --format")


_QUOTING = "double quotation marks within a quoted cell, or give JSON lines"
_PAGE_BREAKS = re.compile("[\v\f\x1c-\x1f\x85]")
"""White space that BERT's normalizer removes, so that it would fuse the words around it."""
_IDS = ("id", "document_id", "doc_id", "paper_id")
_Reader = Callable[[IO[bytes], str, tuple[str, ...], Decoder], Iterator[Document]]


class CorpusReader:
    """Reads a corpus once: iterate over ``documents()``, then use ``counts``.

    ``counts``: ``documents``, ``lines``, and if not 0 ``replaced`` (broken UTF-8 sequences),
    ``empty_documents``, ``skipped_files`` (of unknown kinds, in a folder or an archive), ``broken_lines`` (see
    ``--lenient``), ``unparsable_files`` (pydocs), ``repeated_parses`` and ``missing_parses`` (CORD-19).
    """

    def __init__(self, recipe: Recipe, paths: tuple[str, ...], decoder: Decoder, workers: int) -> None:
        self.recipe = recipe
        self.paths = paths
        """Paths of the sources on this machine."""
        self._decoder = decoder
        self._workers = workers

    @cached_property
    def packages(self) -> list[pydocs.Package]:
        """pydocs: what is read, found once."""
        return pydocs.find_packages(self.recipe.packages)

    @property
    def counts(self) -> dict[str, int]:
        """Counts of what has been read and skipped."""
        return dict(sorted(self._decoder.counts.items()))

    def documents(self) -> Iterator[Document]:
        """Yield the documents with text of all sources, in order.

        Replaces lone surrogates. Raises ``InputError`` if a file is invalid or beyond a limit, or no source has text.
        """
        recipe = self.recipe
        self._decoder.counts = counts = Counter[str]()
        self._decoder.skipped = []
        if recipe.format == "pydocs":
            documents = pydocs.read_pydocs(self.packages, counts=counts, workers=self._workers)
        else:
            documents = _read_files(
                self.paths, recipe.format, recipe.fields, recipe.sample_by, self._decoder, in_lines=True
            )
        for document in documents:
            if not document.lines:
                counts["empty_documents"] += 1
                continue
            counts["documents"] += 1
            counts["lines"] += len(document.lines)
            lines = (
                self._decoder.replace_surrogates(_PAGE_BREAKS.sub(" ", line), document.name) for line in document.lines
            )
            yield replace(document, lines=tuple(lines))
        self._require_text()

    def warn_skipped(self, progress: Progress) -> None:
        """Warn about skipped lines, replaced bytes, and skipped files and symlinks.

        Archives of PMC also contain lists of files, which are not named.
        """
        name, counts = self.recipe.argument, self._decoder.counts
        if self.recipe.format != "pmc":
            warn_skipped(name, self._decoder, progress)
        if broken := counts["broken_lines"]:
            what = pluralize(broken, "line or row that is", "lines or rows that are")
            progress.warn(f"{name}: skipped {what} broken or without the text's field")
        if replaced := counts["replaced"]:
            progress.warn(f"{name}: replaced {pluralize(replaced, 'broken UTF-8 sequence')}")

    def _require_text(self) -> None:
        """Raise ``InputError`` if no document has been read."""
        if self._decoder.counts["documents"]:
            return
        counts, sources = self._decoder.counts, pluralize(len(self.paths), "source")
        hint = "check the files"
        if skipped := self._decoder.skipped_files():
            hint = f"skipped {skipped}; for text give --format"
        elif broken := counts["broken_lines"]:
            hint = f"skipped {pluralize(broken, 'line or row', 'lines or rows')}: leave out --lenient to see why"
        raise InputError(f"corpus {self.recipe.argument or self.recipe.name} has no text in {sources}", hint)

    def fingerprint(self) -> dict[str, str]:
        """SHA-256 of each source by its URL or path, one for a folder; for pydocs of each package's sources.

        Raises ``InputError`` if it is not the one in the recipe.
        """
        if self.recipe.format == "pydocs":
            return pydocs.fingerprint_pydocs(self.packages)
        hashes = {}
        for source, path in zip(self.recipe.sources, self.paths, strict=True):
            hashes[source.url] = sha256 = path_sha256(Path(path))
            if source.sha256 and sha256 != source.sha256.lower():
                raise InputError(
                    f"{path}: SHA-256 is {sha256}, the recipe has {source.sha256}",
                    "give the right file, or correct the recipe",
                )
        return hashes


def open_corpus(
    recipe: Recipe,
    download_folder: Path,
    *,
    strict: bool = False,
    lenient: bool | None = None,
    max_bytes: int = MAX_DOCUMENT_BYTES,
    workers: int = 1,
) -> CorpusReader:
    """Create a reader of a corpus whose downloads are in ``download_folder``; a document has at most ``max_bytes``.

    ``lenient=None``: False, and the user has no ``--lenient`` to change it.

    Raises ``MissingError`` if a source is not downloaded yet, or a local source or a package is missing.
    """
    require_folders(recipe, download_folder)
    if not is_fetched(recipe, download_folder):
        raise MissingError(
            f"corpus {recipe.name} is not downloaded to {download_folder}",
            f"run greenadapt corpus prepare {shlex.quote(recipe.argument or recipe.name)} --download",
        )
    require_local(recipe)
    paths = tuple(str(local_path(source, download_folder)) for source in recipe.sources)
    leniency = "" if lenient is None else "use --lenient to skip such lines"
    decoder = Decoder(strict, bool(lenient), leniency, max_bytes)
    return CorpusReader(recipe, paths, decoder, workers)


def require_local(recipe: Recipe) -> None:
    """Raise ``MissingError`` if a file, folder or package of the recipe is missing.

    Raises ``InputError`` for another kind of source, such as a pipe, which cannot be read twice.
    """
    if recipe.format == "pydocs" and recipe.packages:
        pydocs.find_packages(recipe.packages)
    for source in recipe.sources:
        if source.is_remote:
            continue
        if not Path(source.url).exists():
            raise MissingError(f"{source.url} does not exist", "check the path")
        if is_read_once(source.url):
            raise InputError(
                f"{source.url} is a pipe or a device, not a file or a folder",
                "pipe its text to standard input, and give -",
            )


def read_whole(
    source: str, kind: str, fields: tuple[str, ...], decoder: Decoder, sample_by: SampleBy = "document"
) -> Iterator[Document]:
    """Yield the documents of a file, folder or archive of the format ``kind``, or of standard input for ``-``.

    Plain text, cut into documents by ``sample_by``, and fields of JSON lines are verbatim: each is one of the ``lines``
    of a document, with its line breaks. Other formats are read as for a corpus.
    """
    if source != STDIN:
        yield from _read_files([source], kind, fields, sample_by, decoder)
        return
    with open_input(source) as (stream, name):
        yield from _readers(sample_by)[kind](stream, name, fields, decoder)


def _read_files(
    paths: Iterable[str],
    kind: str,
    fields: tuple[str, ...],
    sample_by: SampleBy,
    decoder: Decoder,
    *,
    in_lines: bool = False,
) -> Iterator[Document]:
    """Yield the documents of files, folders, archives and releases of CORD-19, with the reader of the format ``kind``;
    counts files of unknown formats.

    ``in_lines`` cuts verbatim texts into their non-empty lines.
    """
    readers = _readers(sample_by)
    for path in paths:
        if kind == "cord19" and (Path(path).is_dir() or is_tar(path)):
            yield from articles.read_release(path, decoder)
            continue
        for name, opening in _files_in(path, decoder):
            by_name = format_of(name)
            # An archive of PMC also contains lists of files.
            file_kind = {"auto": by_name, "pmc": "xml" if by_name == "xml" else ""}.get(kind, kind)
            if file_kind not in readers:
                decoder.skip_file(name)
                continue
            with opening as stream:
                read = readers[file_kind]
                documents = read(stream, name, fields, decoder)
                yield from map(_in_lines, documents) if in_lines and read in _VERBATIM else documents


def _read_lines(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Read plain text: each non-empty line is a document of one line."""
    for number, line in decoder.lines(stream, name):
        if text := line.strip():
            yield Document((text,), f"{name}:{number}")


def _read_paragraphs(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Read plain text: each paragraph between empty lines is a document of one text with line breaks."""
    lines = decoder.lines(stream, name)
    for number, line in lines:
        if line.strip():
            following = takewhile(lambda numbered: numbered[1].strip(), lines)
            yield Document((decoder.join(chain([(number, line)], following), name).strip(),), f"{name}:{number}")


def _read_text(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Read plain text as one document of one text with line breaks."""
    yield Document((decoder.join(decoder.lines(stream, name), name),), name)


def _read_json_rows(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Read JSON lines or a JSON array: the texts in ``fields`` of each object, in that order, verbatim."""
    return _json_documents(decoder.lines(stream, name), name, fields, decoder)


def _read_json(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Read a CORD-19 parse, a JSON array, JSON lines, or a single object."""
    lines = decoder.lines(stream, name)
    number, first = next(((number, line) for number, line in lines if line.strip()), (1, ""))
    lines = chain([(number, first)], lines)
    try:
        value = None if first.lstrip().startswith("[") else parse_json(first, name, number)
    except InputError:  # an object on several lines, or a broken one
        text = decoder.join(lines, name)
        value, lines = parse_json(text, name, number), iter([(number, text)])
    if articles.is_parse(value):
        yield articles.parse_document(value, name, name, with_abstract=True)
    else:
        yield from _json_documents(lines, name, fields, decoder)


def _json_documents(lines: Lines, name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    for number, row in enumerate(json_rows(lines, name, decoder), start=1):
        try:
            texts = tuple(_record_texts(row.fields, fields, row.where))
        except InputError as error:
            decoder.skip(row.line or number, error)
        else:
            yield Document(texts, row.where, _record_id(row.fields), _record_title(row.fields))


def _record_texts(record: Json, fields: tuple[str, ...], where: str) -> Iterator[str]:
    for field in fields:
        if field not in record:
            raise _missing_field_error(where, "field", field, record)
        value = record[field]
        if value is None:
            continue
        if not isinstance(value, str):
            raise InputError(f"{where}: field {field} is {json_kind(value)}, not text", "choose another with --field")
        yield value


def _record_id(record: Json) -> str:
    """The value of the first usual id field with a string or a number, but no boolean."""
    values = (record.get(name) for name in _IDS)
    return next((str(value) for value in values if type(value) in (str, int) and str(value).strip()), "")


def _record_title(record: Json) -> str:
    value = record.get("title")
    return squeeze(value) if isinstance(value, str) else ""


def _in_lines(document: Document) -> Document:
    return replace(document, lines=tuple(line for text in document.lines for line in _text_lines(text)))


def _text_lines(text: str) -> Iterator[str]:
    return (stripped for line in text.replace("\r", "\n").split("\n") if (stripped := line.strip()))


def _missing_field_error(where: str, kind: str, name: str, present: Iterable[str]) -> InputError:
    return InputError(f"{where} has no {kind} {name}, it has: {list_names(present)}", "choose one with --field")


def _read_table(
    stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder, separator: str
) -> Iterator[Document]:
    """Read a table with a header: the columns ``fields`` of each row, in that order."""
    names, rows = table_rows(decoder.lines(stream, name), name, separator, decoder, hint=_QUOTING)
    for column in fields if names else ():
        if column not in names:
            raise _missing_field_error(name, "column", column, names)
    for _, last_line, cells in rows:
        record = dict(zip(names, cells, strict=True))
        lines = tuple(line for column in fields for line in _text_lines(record[column]))
        yield Document(lines, f"{name}:{last_line}", _record_id(record), _record_title(record))


def _readers(sample_by: SampleBy) -> dict[str, _Reader]:
    """The reader of each format."""
    texts: dict[SampleBy, _Reader] = {"line": _read_lines, "paragraph": _read_paragraphs, "document": _read_text}
    return {
        "text": texts[sample_by],
        "jsonl": _read_json_rows,
        "json": _read_json,
        "csv": partial(_read_table, separator=SEPARATORS[".csv"]),
        "tsv": partial(_read_table, separator=SEPARATORS[".tsv"]),
        "cord19": articles.read_parse,
        "xml": articles.read_xml,
    }


_VERBATIM = (_read_json_rows, _read_paragraphs, _read_text)


def words_in_files(paths: list[Path], splitter: WordSplitter) -> set[str]:
    """Collect the words of the files' texts.

    In JSON and JSON lines (by suffix) every string is text; in other files every line, including tags, since extra
    words do no harm and missing ones would. Raises ``InputError`` if a file cannot be read.
    """
    words: set[str] = set()
    boundaries = _Boundaries()
    for path in paths:
        for text in _texts(str(path)):
            words.update(splitter.split(text))
            # Transformers alone matches added tokens at the boundaries of \\w, not at the tokenizer's words.
            words.update(splitter.normalize(text).translate(boundaries).split())
    return words


class _Boundaries(dict[int, int]):
    """Maps every character that no exported word contains to a space."""

    def __missing__(self, character: int) -> int:
        self[character] = character if unicodedata.category(chr(character)) in WORD_CATEGORIES else ord(" ")
        return self[character]


def _texts(path: str) -> Iterator[str]:
    suffix = data_suffix(path)
    with open_binary(path) as stream:
        decoder = Decoder()
        if suffix == ".json":
            yield from _strings(parse_json(decoder.join(decoder.lines(stream, path), path), path))
            return
        for number, line in decoder.lines(stream, path):
            if suffix not in (".jsonl", ".ndjson"):
                yield line
            elif line.strip():
                yield from _strings(parse_json(line, path, number))


def _strings(value: Any) -> Iterator[str]:
    stack = [value]  # not recursive: json.loads accepts deeper nesting than the recursion limit
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)
