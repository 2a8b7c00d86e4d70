"""Read the input of predictions, rows or whole documents, from a file or a pipe."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from greenadapt.config import SampleBy
from greenadapt.corpus.opening import (
    CONLL_SUFFIXES,
    JSON_SUFFIXES,
    STDIN,
    TABLE_SUFFIXES,
    data_suffix,
    input_name,
    note_terminal,
    open_input,
    refuse_zip,
    require_names,
)
from greenadapt.corpus.readers import read_whole, warn_skipped
from greenadapt.corpus.recipes import FORMATS, format_of
from greenadapt.corpus.rows import Lines, json_rows
from greenadapt.corpus.text import Decoder, Document
from greenadapt.errors import GreenadaptError, InputError, MissingError, UsageError, pluralize
from greenadapt.progress import Progress
from greenadapt.store.files import Json
from greenadapt.tasks.conll import conll_sentences
from greenadapt.tasks.records import records

EntryFormat = Literal["text", "jsonl", "conll"]

_FIRST_BLOCK, _BLOCK, _BLOCK_CHARACTERS = 32, 1024, 1 << 20
"""Entries that are predicted together, at first and at most, and their characters."""


class Reader(Protocol):
    """Makes examples of the input: a ``Task``, or several that read the same input. Of ``classification`` it also has
    the ``table`` of ``TaskConfig``.
    """

    @property
    def name(self) -> str:
        """``ner``, ``classification`` or ``qa``, or several of them."""

    def example(self, record: str | Json, where: str) -> Any:
        """See ``Task.example``."""


@dataclass(frozen=True)
class Entry:
    """One line of the input, one sentence of CoNLL columns, or one object of a JSON array, which has no line."""

    line: int | None
    """Counted from 1; of a sentence its first."""
    id: Any
    """The record's id, ``None`` without one."""
    example: Any
    size: int
    """About how many characters it has."""
    where: str
    """File and place in it, for messages."""


def read_entries(
    reader: Reader, source: str, kind: EntryFormat | None, progress: Progress, columns: tuple[str, ...] = ()
) -> Iterator[Entry]:
    """The entries of ``source`` (a file, compressed or not, or ``-`` for standard input), lazily.

    Without a ``kind`` the suffix decides:

    - .jsonl, .json, .ndjson: JSON lines or a JSON array
    - .csv, .tsv: the rows of a table, not for NER
    - .conll, .bio, .iob, .iob2: for NER, the words of CoNLL columns, see ``conll_sentences``
    - else: lines of text; an empty line is an entry, too

    ``columns`` names the columns of CoNLL files, by default as in training. Raises ``InputError`` with the line of what
    cannot be read, and ``UsageError`` for a format that is not for this task.
    """
    kind = kind or _kind_of(source, reader.name)
    if columns and kind != "conll":
        raise UsageError(
            f"--columns is for CoNLL columns, this is read as {kind or 'a table'}",
            "leave it out, or add --format conll",
        )
    if kind is None:
        yield from _table_entries(reader, source, progress)
        return
    if kind == "conll" and reader.name != "ner":
        raise UsageError(f"--format conll is for NER, the model is for {reader.name}", "leave out --format conll")
    decoder = Decoder()
    note_terminal(source, progress)
    with open_input(source) as (stream, name):
        lines = decoder.lines(stream, name)
        if kind == "conll":
            yield from _sentences(reader, lines, name, columns or getattr(reader, "columns", ()), progress)
        else:
            yield from _entries(reader, lines, kind, name, decoder)
    decoder.warn_replaced(name, progress)


def _entries(reader: Reader, lines: Lines, kind: EntryFormat, name: str, decoder: Decoder) -> Iterator[Entry]:
    """The entries of ``lines``, each as soon as its last line is read."""
    if kind == "text":
        for number, line in lines:
            where = f"{name}:{number}"
            yield Entry(number, None, reader.example(line.rstrip("\r\n"), where), len(line), where)
    else:
        for row in json_rows(lines, name, decoder):
            example = reader.example(row.fields, row.where)
            yield Entry(row.line, row.fields.get("id"), example, row.size, row.where)


def _sentences(
    reader: Reader, lines: Lines, name: str, columns: tuple[str, ...], progress: Progress
) -> Iterator[Entry]:
    """The sentences of CoNLL columns."""
    layout, sentences = conll_sentences(lines, name, columns)
    if note := layout.describe():
        progress.note(f"{name}: {note}")
    for rows in sentences:
        words, where = [row.columns[layout.word] for row in rows], f"{name}:{rows[0].line}"
        yield Entry(rows[0].line, None, reader.example({"tokens": words}, where), sum(map(len, words)), where)


def group_entries(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """``entries`` in blocks of 32, of 64, and so on to 1,024, so that the first predictions come soon; fewer of long
    ones.

    An error in reading them is raised only after the block of the entries before it.
    """
    block: list[Entry] = []
    size, most = 0, min(_FIRST_BLOCK, _BLOCK)
    failure = None
    try:
        for entry in entries:
            block.append(entry)
            size += entry.size
            if len(block) == most or size >= _BLOCK_CHARACTERS:
                yield block
                block, size, most = [], 0, min(2 * most, _BLOCK)
    except GreenadaptError as error:
        failure = error
    if block:
        yield block
    if failure is not None:
        raise failure


def _kind_of(source: str, task: str) -> EntryFormat | None:
    """The format by the name; ``None`` for a table."""
    suffix = data_suffix(source)
    if suffix in TABLE_SUFFIXES:
        if "ner" not in task.split(" and "):
            return None
        raise UsageError(
            f"{source} is a table by its name, and the model is for {task}",
            "give JSON lines" if task != "ner" else "give JSON lines, or --format conll if its first column has words",
        )
    if suffix in CONLL_SUFFIXES and task == "ner":
        return "conll"
    return "jsonl" if suffix in JSON_SUFFIXES else "text"


def _table_entries(reader: Reader, source: str, progress: Progress) -> Iterator[Entry]:
    """The rows of a table, which needs no label, read as the labelled tables of training are."""
    for where, row in records(source, progress, getattr(reader, "table", None)):
        line = int(where.rpartition(":")[2])
        yield Entry(line, row.get("id") or None, reader.example(row, where), sum(map(len, row.values())), where)


DOCUMENT_FORMATS = tuple(name for name in FORMATS if name != "pydocs")


_SUFFIXES = ".txt, .jsonl, .csv, .tsv, .json, .xml, .nxml or .tar, compressed or not"


@dataclass(frozen=True)
class NamedText:
    """A document: characters of answers count in ``text``."""

    name: str
    text: str
    title: str = ""


@dataclass
class Names:
    """The names of the documents so far."""

    taken: set[str] = field(default_factory=set)
    _repeats: Counter[str] = field(default_factory=Counter)
    _decoder: Decoder = field(default_factory=Decoder)

    def name(self, document: Document) -> str:
        """The document's own id. If it has none, or another document has it, its place, such as ``a.jsonl:3``; if
        another has that as well, such as the first article of an XML file, the place and ``#2``.
        """
        own, where = (self._decoder.replace_surrogates(name, name) for name in (document.id, document.name))
        name = own if own and own not in self.taken else where
        while not name or name in self.taken:
            self._repeats[where] += 1
            name = f"{where}#{self._repeats[where] + 1}"
        self.taken.add(name)
        return name


def read_texts(
    source: str,
    progress: Progress,
    format: str | None = None,  # noqa: A002  (the option's name)
    fields: tuple[str, ...] = ("text",),
    names: Names | None = None,
    sample_by: SampleBy | None = None,
) -> Iterator[NamedText]:
    """The documents of a file, a folder, a tar archive, or of standard input for ``-``, lazily.

    ``format`` is one of ``DOCUMENT_FORMATS``; without it the suffix decides, and standard input is text. ``sample_by``
    says whether a line (the default), a paragraph or a file of plain text is a document; its text is kept as it is, but
    for white space around it. A JSON object is a document of the strings in ``fields``, with a line break between. So
    is a row of a table, a CORD-19 parse or an article, with a line per paragraph that the corpus readers find in it.

    A document has the name that ``Names`` gives it; sources that share ``names`` have no name twice.

    Files of unknown kinds and documents without text are left out, with a warning that counts them. Raises
    ``MissingError`` if nothing is there, ``UsageError`` for an unknown format, and ``InputError`` if the format
    is unknown, a file is broken, or there is no text at all.
    """
    is_by_name, kind = format is None, _kind(source, format)
    names, decoder = names or Names(), Decoder()
    name, counts, n_lines = input_name(source), decoder.counts, 0
    note_terminal(source, progress)
    for document in read_whole(source, kind, fields, decoder, sample_by or "line"):
        text = decoder.replace_surrogates("\n".join(document.lines), document.name)
        is_first = not counts["documents"] + counts["empty"]
        if is_first and is_by_name and kind == "text" and text.startswith(('{"', '[{"')):
            raise InputError(f"{name} looks like JSON, not text", "give --format jsonl, or --format text")
        if not text.strip():
            counts["empty"] += 1
            continue
        counts["documents"] += 1
        format_within = format_of(document.name.rpartition(":")[0]) if kind == "auto" else kind
        n_lines += sample_by is None and format_within == "text"
        title = decoder.replace_surrogates(document.title, document.name)
        yield NamedText(names.name(document), text, title)
    if not counts["documents"]:
        if skipped := decoder.skipped_files():
            raise InputError(f"{name} has no text: skipped {skipped}", "for text give --format")
        raise InputError(f"{name} has no text", "give a document with text")
    if n_lines > 1:
        documents = f"{pluralize(n_lines, 'line')} of plain text, a document each"
        progress.note(f"{name}: {documents}; --sample-by document reads a file as one document")
    warn_skipped(name, decoder, progress)
    if empty := counts["empty"]:
        progress.warn(f"{name}: left out {pluralize(empty, 'document')} without text")
    decoder.warn_replaced(name, progress)


def _kind(source: str, format: str | None) -> str:  # noqa: A002  (the option's name)
    """The format of a source that is there."""
    formats = tuple(name for name in DOCUMENT_FORMATS if name != "auto") if source == STDIN else DOCUMENT_FORMATS
    if format is not None and format not in formats:
        medium = "standard input" if source == STDIN else "a document"
        raise UsageError(f"{format!r} is not a format of {medium}", f"the formats are {', '.join(formats)}")
    if source == STDIN:
        return format or "text"
    if "://" not in source:
        if not Path(source).exists():
            raise MissingError(f"{source} does not exist", "check the path")
        require_names(source)
    kind = format or ("auto" if Path(source).is_dir() else format_of(source))
    if not kind:
        refuse_zip(source)
        raise InputError(
            f"{source}: cannot tell the format from the name",
            f"give a file named {_SUFFIXES}, or say --format, one of {', '.join(formats)}",
        )
    return kind
