"""From files to documents: the choice of reader, and the readers of plain text, JSON lines, CSV and TSV.

Files, releases of CORD-19 and ranges of lines of large plain files are pieces that different processes can read;
documents are in the order of the pieces.
"""

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise, takewhile
from pathlib import Path
from typing import IO, Any

from greenadapt.config import SampleBy, TextLimits
from greenadapt.corpus import articles, pydocs
from greenadapt.corpus.download import check_local, is_fetched, local_path
from greenadapt.corpus.opening import (
    SEPARATORS,
    STDIN,
    input_errors,
    is_compressed,
    is_hidden,
    is_tar,
    open_binary,
    open_input,
    open_member,
    path_sha256,
    squeeze,
    visible_files,
)
from greenadapt.corpus.recipes import Recipe, format_of, require_file
from greenadapt.corpus.rows import parse_json, require_object, table_rows
from greenadapt.corpus.text import Decoder, Document, LineRange, tar_members
from greenadapt.errors import InputError, MissingError, counted, json_kind
from greenadapt.progress import Progress
from greenadapt.storage.files import Json

_LINEWISE = ("text", "jsonl")
"""Formats in which a line says all of a document, so that some lines can be read alone."""
_PARTS = 512
SMALLEST, LARGEST = 4 << 20, 64 << 20
"""Bytes of a part: enough for the start of a task not to count, and little to lose with a node."""


@dataclass(frozen=True)
class Piece:
    """A file, or its lines in ``span``; an archive; or the folder or archive of a release of CORD-19."""

    path: str
    span: LineRange | None = None
    is_release: bool = False


@dataclass(frozen=True)
class _Block:
    """Some bytes of a file."""

    path: str
    begin: int
    size: int


def pieces_of(path: str, kind: str, counts: Counter[str]) -> Iterator[Piece]:
    """A file or an archive, or a folder's files in order of path, of the format ``kind``.

    Hidden files are left out, and so are symlinks to folders, counted as ``linked_folders``, and to files that do not
    exist, counted as ``dangling_links``.
    """
    if articles.is_release(path, kind):
        yield Piece(path, is_release=True)
    elif not Path(path).is_dir():
        yield Piece(path)
    else:
        for file in visible_files(Path(path)):
            if file.is_file():
                yield Piece(str(file))
            elif file.is_symlink() and file.is_dir():
                counts["linked_folders"] += 1
            elif file.is_symlink() and not file.exists():
                counts["dangling_links"] += 1


def warn_symlinks(name: str, counts: Mapping[str, int], progress: Progress) -> None:
    """Say how many symlinks ``pieces_of`` left out of the folder ``name``."""
    if linked := counts.get("linked_folders"):
        what = counted(linked, "symlink to a folder", "symlinks to folders")
        progress.warn(f"{name}: skipped {what}: name the folders themselves")
    if dangling := counts.get("dangling_links"):
        progress.warn(f"{name}: skipped {counted(dangling, 'symlink')} to files that do not exist")


def is_linewise(path: str, kind: str, sample_by: SampleBy = "line") -> bool:
    """Whether it is a plain file in which a line says all of a document; ``kind`` is its format or ``auto``."""
    kind = format_of(path) if kind == "auto" else kind
    if kind == "text" and sample_by != "line":
        return False
    return kind in _LINEWISE and Path(path).is_file() and not (is_tar(path) or is_compressed(path))


def parts_of(
    pieces: Iterable[Piece],
    kind: str,
    run: Callable[[Callable[[_Block], Any], Iterable[_Block]], Iterator[Any]] = map,
    sample_by: SampleBy = "line",
) -> list[tuple[Piece, ...]]:
    """Consecutive ``pieces`` together; large plain files of lines are cut, others are not.

    A part has a 512th of all bytes on disk, but at least 4 MB and at most 64, so that the parts depend on the text
    alone, and a long text does not have too many. ``run`` counts the lines of large files, as ``map`` does.
    """
    sized = [(piece, _size(piece)) for piece in pieces]
    size = min(max(sum(n for piece, n in sized if not piece.is_release) // _PARTS, SMALLEST), LARGEST)
    large = [
        (piece, n_bytes) for piece, n_bytes in sized if n_bytes > size and is_linewise(piece.path, kind, sample_by)
    ]
    counted = run(
        _count_lines,
        (_Block(piece.path, begin, size) for piece, n_bytes in large for begin in range(0, n_bytes, size)),
    )
    cut = {piece: _cut(piece, n_bytes, size, islice(counted, -(-n_bytes // size))) for piece, n_bytes in large}
    parts: list[list[Piece]] = []
    taken = 0
    for piece, n_bytes in (one for whole in sized for one in cut.get(whole[0], [whole])):
        if not parts or taken + n_bytes > size:
            parts.append([])
            taken = 0
        parts[-1].append(piece)
        taken += n_bytes
    return list(map(tuple, parts))


def _size(piece: Piece) -> int:
    """Its bytes on disk; any number will do for a folder, which is a part of its own."""
    return 1 << 62 if piece.is_release else Path(piece.path).stat().st_size


def _cut(piece: Piece, n_bytes: int, size: int, counted: Iterable[tuple[int, int]]) -> list[tuple[Piece, int]]:
    """The lines that begin in each ``size`` bytes of a file, given ``_count_lines`` of them; and their bytes."""
    begins, n_lines = [(0, 0)], 0
    for number, (n, first) in enumerate(counted):
        begin = number * size + first
        if number and n and begin < n_bytes:
            begins.append((begin, n_lines + 1))
        n_lines += n
    spans = [LineRange(*begin, last=end[1]) for begin, end in pairwise(begins)] + [LineRange(*begins[-1])]
    ends = [*(begin for begin, _ in begins[1:]), n_bytes]
    return [(replace(piece, span=span), end - span.n_bytes) for span, end in zip(spans, ends, strict=True)]


def _count_lines(block: _Block) -> tuple[int, int]:
    """How many lines end in ``block``, and how many of its bytes are up to the first end."""
    with input_errors(block.path), open(block.path, "rb") as file:
        file.seek(block.begin)
        data = file.read(block.size)
    return data.count(b"\n"), data.find(b"\n") + 1


# An archive of PMC contains file lists as well as articles, and its .txt files are articles with section marks.
_PMC_MEMBERS = {"xml": "xml", "text": "pmc"}
_LENIENT = "give one JSON object per line, or use --lenient to skip such lines"
_BLOCK = 1 << 20
_IDS = ("id", "document_id", "doc_id", "paper_id")
_Reader = Callable[[IO[bytes], str, tuple[str, ...], Decoder], Iterator[Document]]


class CorpusReader:
    """One pass over a corpus: iterate over ``documents()``, then look at ``counts``.

    ``counts``: ``documents``, ``lines``, and if not 0 ``replaced`` (broken UTF-8 sequences),
    ``empty_documents``, ``skipped_files`` (of unknown kinds, in a folder or an archive),
    ``linked_folders`` and ``dangling_links`` (in a folder, symlinks to folders and to files that do not exist),
    ``broken_lines`` (not JSON objects), ``unparsable_files`` (pydocs), ``repeated_parses`` and
    ``missing_parses`` (CORD-19).
    """

    def __init__(self, recipe: Recipe, paths: tuple[str, ...], decoder: Decoder, workers: int) -> None:
        self.recipe = recipe
        self.paths = paths
        """Of the sources on this machine."""
        self._decoder = decoder
        self._workers = workers
        self._before: Json = {}

    @property
    def counts(self) -> dict[str, int]:
        """What was read and skipped so far."""
        return dict(sorted(self._decoder.counts.items()))

    def documents(self) -> Iterator[Document]:
        """The documents in order of the sources; ``InputError`` if a file is invalid, or none has text."""
        self._count_afresh(self._before)
        yield from self._checked(self._read())
        self.require_text()

    def pieces(self) -> list[Piece]:
        """What ``documents`` reads, in that order; counts the symlinks that are left out. Not for pydocs."""
        self._count_afresh({})
        return [piece for path in self.paths for piece in pieces_of(path, self.recipe.format, self._decoder.counts)]

    def documents_of(self, pieces: Iterable[Piece]) -> Iterator[Document]:
        """The documents of some ``pieces``; ``counts`` is then about these alone."""
        self._count_afresh({})
        yield from self._checked(self._read_pieces(pieces))

    def add(self, counts: Mapping[str, int]) -> None:
        """Add the ``counts`` of another reading, of some pieces, to these."""
        self._decoder.counts.update(counts)

    def require_text(self) -> None:
        """Raise ``InputError`` if no document has been read."""
        if not self._decoder.counts["documents"]:
            raise InputError(
                f"corpus {self.recipe.asked or self.recipe.name} has no text in {counted(len(self.paths), 'source')}",
                self._what_to_do(),
            )

    def fingerprint(self) -> dict[str, str]:
        """SHA-256 of each source by its URL or path, one for a folder; for pydocs of each package's sources."""
        if self.recipe.format == "pydocs":
            return pydocs.fingerprint_pydocs(self.recipe.packages)
        found = {}
        for source, path in zip(self.recipe.sources, self.paths, strict=True):
            found[source.url] = path_sha256(Path(path))
            check_local(source, found[source.url])
        return found

    def sizes(self) -> dict[str, int]:
        """Bytes of each source that is a file read line by line, by its URL or path."""
        found = zip(self.recipe.sources, self.paths, strict=True)
        how = self.recipe.format, self.recipe.sample_by
        return {source.url: Path(path).stat().st_size for source, path in found if is_linewise(path, *how)}

    def go_on(self, sources: Mapping[str, str], sizes: Mapping[str, int], counts: Json) -> bool:
        """Read from now on only what was appended, if every source still begins as it was read then; returns whether.

        ``sources`` is the ``fingerprint`` of that reading, and ``sizes`` and ``counts`` are its own.
        """
        paths = {source.url: path for source, path in zip(self.recipe.sources, self.paths, strict=True)}
        spans = {}
        for url, sha256 in sources.items():
            span = _appended(Path(paths[url]), sizes[url], sha256) if url in paths and url in sizes else None
            if span is None:
                return False
            spans[paths[url]] = span
        self._decoder.spans, self._before = spans, counts
        return True

    def check(self) -> None:
        """Raise ``InputError`` if a local source's checksum or size does not match the recipe."""
        for source, path in zip(self.recipe.sources, self.paths, strict=True):
            if source.sha256 or source.size:
                check_local(source, path_sha256(Path(path)))

    def _what_to_do(self) -> str:
        skipped = self._decoder.counts["skipped_files"]
        return (
            f"skipped {counted(skipped, 'file')} of unknown kinds: give their format with --format"
            if skipped
            else "check the files"
        )

    def _read(self) -> Iterator[Document]:
        if self.recipe.format == "pydocs":
            counts = self._decoder.counts
            yield from pydocs.read_pydocs(self.recipe.packages, counts=counts, workers=self._workers)
        for path in self.paths:
            yield from self._read_pieces(pieces_of(path, self.recipe.format, self._decoder.counts))

    def _read_pieces(self, pieces: Iterable[Piece]) -> Iterator[Document]:
        readers = {**_READERS, "text": _TEXT_READERS[self.recipe.sample_by]}
        manner = _Manner(self.recipe.format, self.recipe.fields, readers)
        for piece in pieces:
            yield from _read_piece(piece, manner, self._decoder)

    def _checked(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Those with text, counted, within the limits and without lone surrogates."""
        counts = self._decoder.counts
        for document in documents:
            if not document.lines:
                counts["empty_documents"] += 1
                continue
            counts["documents"] += 1
            counts["lines"] += len(document.lines)
            for line in document.lines:
                self._decoder.check_words(line, document.name)
            lines = (self._decoder.without_surrogates(line, document.name) for line in document.lines)
            yield replace(document, lines=tuple(lines))

    def _count_afresh(self, before: Mapping[str, int]) -> None:
        self._decoder.counts.clear()
        self._decoder.counts.update(before)


def open_corpus(
    recipe: Recipe,
    download_folder: Path,
    *,
    strict: bool = False,
    lenient: bool = False,
    limits: TextLimits | None = None,
    workers: int = 1,
) -> CorpusReader:
    """A reading of a corpus whose remote sources are in ``download_folder``; ``limits`` default to the recipe's.

    Raises ``MissingError`` if one is not downloaded yet, or a local source or a package is missing.
    """
    if not is_fetched(recipe, download_folder):
        raise MissingError(
            f"corpus {recipe.name} is not downloaded to {download_folder}",
            f"run greenadapt corpus prepare {shlex.quote(recipe.asked or recipe.name)} --download",
        )
    require_local(recipe)
    paths = tuple(str(local_path(source, download_folder)) for source in recipe.sources)
    return CorpusReader(recipe, paths, Decoder(strict, lenient, limits or recipe.limits), workers)


def require_local(recipe: Recipe) -> None:
    """Raise ``MissingError`` if a file, folder or package of the recipe is missing on this machine, ``InputError`` if a
    source is something else, such as a pipe, which cannot be read twice.
    """
    if recipe.format == "pydocs" and recipe.packages:
        pydocs.find_packages(recipe.packages)
    for source in recipe.sources:
        if not source.is_remote:
            require_file(Path(source.url))


def read_whole(
    source: str, kind: str, fields: tuple[str, ...], decoder: Decoder, sample_by: SampleBy = "document"
) -> Iterator[Document]:
    """The documents of a file, folder or archive of the format ``kind``, or of standard input for ``-``, verbatim if
    possible: what ``sample_by`` makes a document of plain text, like each field of JSON lines, is one of the ``lines``
    with all its line breaks. Other formats are read as for a corpus.
    """
    manner = _Manner(kind, fields, {**_WHOLE_READERS, "text": _WHOLE_TEXT_READERS[sample_by]})
    if source != STDIN:
        for piece in pieces_of(source, kind, decoder.counts):
            yield from _read_piece(piece, manner, decoder)
        return
    with open_input(source) as (stream, name):
        yield from manner.readers[kind](stream, name, fields, decoder)


@dataclass(frozen=True)
class _Manner:
    """The format of the sources, their fields with text, and the readers of the formats."""

    format: str
    fields: tuple[str, ...]
    readers: Mapping[str, _Reader]


def _read_piece(piece: Piece, manner: _Manner, decoder: Decoder) -> Iterator[Document]:
    if piece.is_release:
        yield from articles.read_release(piece.path, decoder)
        return
    if piece.span is not None:
        decoder.spans[piece.path] = piece.span
    yield from _read_file(piece.path, manner, decoder)


def _read_file(path: str, manner: _Manner, decoder: Decoder) -> Iterator[Document]:
    if not is_tar(path):
        yield from _read_stream(path, open_binary(path, decoder.limits), manner, decoder)
        return
    with open_binary(path, decoder.limits) as stream:
        for name, content in tar_members(stream, path):
            if not is_hidden(name):
                member = f"{path}:{name}"
                opening = open_member(content, member, decoder.limits)
                yield from _read_stream(member, opening, manner, decoder)


def _appended(path: Path, size: int, sha256: str) -> LineRange | None:
    """What follows the first ``size`` bytes of a file; ``None`` if they are others, or end within a line."""
    digest, n_lines, left, last = hashlib.sha256(), 0, size, b"\n"
    with input_errors(str(path)), open(path, "rb") as file:
        while left and (block := file.read(min(left, _BLOCK))):
            digest.update(block)
            n_lines += block.count(b"\n")
            left, last = left - len(block), block[-1:]
        is_whole = last == b"\n" or not file.read(1)
    return LineRange(size, n_lines) if is_whole and not left and digest.hexdigest() == sha256 else None


def _read_stream(
    name: str, opening: AbstractContextManager[IO[bytes]], manner: _Manner, decoder: Decoder
) -> Iterator[Document]:
    guessed = format_of(name)
    kind = {"auto": guessed, "pmc": _PMC_MEMBERS.get(guessed, "")}.get(manner.format, manner.format)
    if kind not in manner.readers:
        decoder.counts["skipped_files"] += 1
        return
    with opening as stream:
        if name in decoder.spans:
            stream.seek(decoder.spans[name].n_bytes)
        yield from manner.readers[kind](stream, name, manner.fields, decoder)


def read_text(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Plain text: each non-empty line is a document of one line."""
    for number, line in decoder.lines(stream, name):
        if text := line.strip():
            yield Document((text,), f"{name}:{number}")


def _read_paragraphs(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Plain text: the lines between empty ones are a document of these lines."""
    for document in _read_whole_paragraphs(stream, name, fields, decoder):
        yield replace(document, lines=tuple(_text_lines(document.lines[0])))


def _read_whole_paragraphs(
    stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder
) -> Iterator[Document]:
    """The same, as a document of one line that may contain line breaks."""
    lines = decoder.lines(stream, name)
    for number, line in lines:
        if line.strip():
            rest = takewhile(lambda numbered: numbered[1].strip(), lines)
            yield Document((decoder.joined(chain([(number, line)], rest), name).strip(),), f"{name}:{number}")


def _read_file_text(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Plain text, all of it, as one document of its non-empty lines."""
    for document in _read_whole_text(stream, name, fields, decoder):
        yield replace(document, lines=tuple(_text_lines(document.lines[0])))


def _read_whole_text(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Plain text, all of it, as one document of one line that may contain line breaks."""
    yield Document((decoder.joined(decoder.lines(stream, name), name),), name)


def read_json_lines(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """JSON lines: the texts in ``fields`` of each object, in that order; a line break inside one ends a paragraph."""
    for document in _read_whole_records(stream, name, fields, decoder):
        yield replace(document, lines=tuple(line for text in document.lines for line in _text_lines(text)))


def _read_whole_records(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """JSON lines: the texts in ``fields`` of each object, as they are."""
    for number, line in decoder.lines(stream, name):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            record = require_object(parse_json(line, name, number, _LENIENT), where)
        except InputError:
            if not decoder.lenient:
                raise
            decoder.counts["broken_lines"] += 1
        else:
            texts = tuple(_record_texts(record, fields, where))
            yield Document(texts, f"{name}:{number}", _own_id(record), _own_title(record))


def _record_texts(record: dict[str, Any], fields: tuple[str, ...], where: str) -> Iterator[str]:
    for wanted in fields:
        if wanted not in record:
            raise _no_field(where, "field", wanted, list(record))
        value = record[wanted]
        if value is None:
            continue
        if not isinstance(value, str):
            raise InputError(f"{where}: field {wanted} is {json_kind(value)}, not text", "choose another with --field")
        yield value


def _own_id(record: Mapping[str, Any]) -> str:
    """The first of the usual id fields with a string or a number (``true`` does not count)."""
    values = (record.get(name) for name in _IDS)
    return next((str(value) for value in values if type(value) in (str, int) and str(value).strip()), "")


def _own_title(record: Mapping[str, Any]) -> str:
    value = record.get("title")
    return squeeze(value) if isinstance(value, str) else ""


def _text_lines(text: str) -> Iterator[str]:
    return (stripped for line in text.split("\n") if (stripped := line.strip()))


def _no_field(where: str, what: str, wanted: str, present: list[str]) -> InputError:
    return InputError(f"{where} has no {what} {wanted}, it has: {', '.join(present)}", "choose one with --field")


def read_csv(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Comma-separated values with a header: the columns ``fields`` of each row, in that order."""
    yield from _read_table(stream, name, fields, decoder, SEPARATORS[".csv"])


def read_tsv(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Tab-separated values with a header, quoted as by spreadsheets."""
    yield from _read_table(stream, name, fields, decoder, SEPARATORS[".tsv"])


def _read_table(
    stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder, separator: str
) -> Iterator[Document]:
    rows = table_rows(decoder.lines(stream, name), name, separator, decoder, hint="quote it, or give JSON lines")
    header = next(rows, None)
    if header is None:
        return
    for wanted in fields:
        if wanted not in header.fields:
            raise _no_field(name, "column", wanted, header.fields)
    columns = [header.fields.index(wanted) for wanted in fields]
    for _, last, row in rows:
        cells = (row[column] for column in columns if column < len(row))
        lines = tuple(line for cell in cells for line in _text_lines(cell))
        record = dict(zip(header.fields, row, strict=False))
        yield Document(lines, f"{name}:{last}", _own_id(record), _own_title(record))


_READERS: dict[str, _Reader] = {
    "text": read_text,
    "jsonl": read_json_lines,
    "csv": read_csv,
    "tsv": read_tsv,
    "cord19": articles.read_parse,
    "xml": articles.read_xml,
    "pmc": articles.read_pmc_text,
}
_WHOLE_READERS: dict[str, _Reader] = {**_READERS, "jsonl": _read_whole_records}
_TEXT_READERS: dict[SampleBy, _Reader] = {"line": read_text, "paragraph": _read_paragraphs, "document": _read_file_text}
_WHOLE_TEXT_READERS: dict[SampleBy, _Reader] = {
    "line": read_text,
    "paragraph": _read_whole_paragraphs,
    "document": _read_whole_text,
}
