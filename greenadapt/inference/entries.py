"""What is predicted on, from a file or a pipe: labelled rows, GLUE's tables, whole documents."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from greenadapt.config import SampleBy, TableFormat
from greenadapt.corpus.opening import (
    CONLL_SUFFIXES,
    JSON_SUFFIXES,
    STDIN,
    TABLE_SUFFIXES,
    data_suffix,
    input_name,
    note_terminal,
    open_binary,
    open_input,
    require_names,
)
from greenadapt.corpus.readers import read_whole, warn_symlinks
from greenadapt.corpus.recipes import FORMATS, format_of
from greenadapt.corpus.rows import Lines, json_rows
from greenadapt.corpus.text import ArrivingLines, Decoder, Document
from greenadapt.errors import GreenadaptError, InputError, MissingError, UsageError, counted
from greenadapt.progress import Progress
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task
from greenadapt.tasks.conll import ConllRow, conll_sentences
from greenadapt.tasks.questions import read_questions, refuse_squad
from greenadapt.tasks.records import records

EntryFormat = Literal["text", "jsonl", "conll", "squad"]


_BLOCK, _BLOCK_CHARACTERS = 1024, 1 << 20
"""Entries that are predicted together, and their characters."""
_SQUAD_CHARACTERS = 1 << 14
GLUE_HEADER = "index\tprediction"
_AS_PUBLISHED = TableFormat(quotes=False)


class Reader(Protocol):
    """What makes examples of the input: a ``Task``, or several that read the same."""

    @property
    def name(self) -> str:
        """``ner``, ``classification`` or ``qa``, or several of them."""

    def example(self, record: str | Json, where: str) -> Any:
        """See ``Task.example``."""


@dataclass(frozen=True)
class Entry:
    """One line of the input, one sentence of CoNLL columns, or one object of a JSON array or question of a SQuAD file,
    which have no line.
    """

    line: int | None
    """Counted from 1; of a sentence its first."""
    id: Any
    """That of the record, ``None`` if it has none."""
    example: Any
    size: int
    """About how many characters it has."""
    where: str
    """File and place in it, for messages."""
    is_last_yet: bool = False
    """Whether what comes next from a pipe or a terminal was not there yet."""


def read_entries(reader: Reader, source: str, kind: EntryFormat | None, progress: Progress) -> Iterator[Entry]:
    """The entries of ``source`` (a file, compressed or not, or ``-`` for standard input), lazily.

    ``kind=None`` takes JSON lines, or a JSON array, where the name ends in .jsonl, .json or .ndjson (SQuAD's JSON for
    question answering on a .json), CoNLL columns for NER on a .conll, .bio, .iob or .iob2, and else text. Every line of
    text is an entry, also an empty one; empty lines between JSON objects or sentences are none. Of CoNLL columns the
    first is the words, which are kept as they are, the others are not read. Raises ``InputError`` with line and column
    where a line is not a JSON object, has an empty word or lacks what ``reader`` needs, and ``UsageError`` for a table,
    for CoNLL columns where the model is not for NER, and for SQuAD's JSON on standard input.
    """
    kind = kind or _kind_of(source, reader.name)
    if kind == "squad":
        if reader.name != "qa":
            raise UsageError(f"--format squad is for question answering, the model is for {reader.name}")
        if source == STDIN:
            raise UsageError("SQuAD's JSON is read from a file", "name it with --input, or give --format jsonl")
        for question in read_questions(source, progress, labelled=False):
            yield Entry(None, question.id, question, _SQUAD_CHARACTERS, question.where)
        return
    if kind == "conll" and reader.name != "ner":
        raise UsageError(f"--format conll is for NER, the model is for {reader.name}", "leave out --format conll")
    decoder = Decoder()
    note_terminal(source, progress)
    with open_input(source) as (stream, name):
        arriving = ArrivingLines.of(stream)
        for entry in _entries(reader, decoder.lines(arriving or stream, name), kind, name, decoder):
            is_last_yet = arriving is not None and arriving.would_wait(for_paragraph=kind == "conll")
            yield replace(entry, is_last_yet=True) if is_last_yet else entry
    decoder.warn_replaced(name, progress)


def _entries(reader: Reader, lines: Lines, kind: EntryFormat, name: str, decoder: Decoder) -> Iterator[Entry]:
    """The entries of ``lines``, each as soon as its last line is read."""
    if kind == "text":
        for number, line in lines:
            where = f"{name}:{number}"
            yield Entry(number, None, reader.example(line.rstrip("\r\n"), where), len(line), where)
    elif kind == "conll":
        yield from (_sentence(reader, rows, name) for rows in conll_sentences(lines, name))
    else:
        for row in json_rows(lines, name, decoder):
            example = reader.example(row.fields, row.where)
            yield Entry(row.line, row.fields.get("id"), example, row.size, row.where)


def _sentence(reader: Reader, rows: Sequence[ConllRow], name: str) -> Entry:
    """A sentence of CoNLL columns."""
    words, where = [row.columns[0] for row in rows], f"{name}:{rows[0].line}"
    return Entry(rows[0].line, None, reader.example({"tokens": words}, where), sum(map(len, words)), where)


def in_blocks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """``entries`` in blocks of about a thousand, fewer of long ones, and of a pipe as many as are there.

    An error in reading them is raised only after the block of all that stands before it.
    """
    block: list[Entry] = []
    size = 0
    failure = None
    try:
        for entry in entries:
            block.append(entry)
            size += entry.size
            if len(block) == _BLOCK or size >= _BLOCK_CHARACTERS or entry.is_last_yet:
                yield block
                block, size = [], 0
    except GreenadaptError as error:
        failure = error
    if block:
        yield block
    if failure is not None:
        raise failure


def _kind_of(source: str, task: str) -> EntryFormat:
    suffix = data_suffix(source)
    if suffix in TABLE_SUFFIXES:
        conll = "--format conll to read words in its first column, or " if task == "ner" else ""
        raise UsageError(
            f"{source} is a table by its name, and predict reads text or JSON lines",
            f"give {conll}--format text to read each of its lines as one text",
        )
    if suffix == ".json" and task == "qa":
        return "squad"
    if suffix in CONLL_SUFFIXES and task == "ner":
        return "conll"
    return "jsonl" if suffix in JSON_SUFFIXES else "text"


def read_glue_entries(task: Task[Any], source: str, progress: Progress) -> Iterator[Entry]:
    """The unlabelled examples of a published test table, lazily.

    Its first line names the columns, whatever those of the training files are called, and quotation marks are text.
    The id of an entry is its index, from 0, which the leaderboard wants. Raises ``UsageError`` for a task that is no
    classification and for standard input, and ``InputError`` with the line where a row has another number of columns
    or none for the text.
    """
    if task.name != "classification":
        raise UsageError(f"--glue is for classification, the model is for {task.name}", "leave out --glue")
    if source == STDIN:
        raise UsageError("a table of GLUE is read from a file", "name it with --input")
    for index, (where, row) in enumerate(records(source, progress, _AS_PUBLISHED)):
        example = task.example(row, where)
        yield Entry(None, index, example, len(example.text) + len(example.second or ""), where)


def glue_line(index: int, prediction: Json) -> str:
    """A line of a submission below ``GLUE_HEADER``, without its end: the class, or the number with three decimals."""
    written = prediction["label"] if "label" in prediction else f"{prediction['value']:.3f}"
    return f"{index}\t{written}"


DOCUMENT_FORMATS = tuple(name for name in FORMATS if name != "pydocs")


_SUFFIXES = ".txt, .jsonl, .csv, .tsv, .json (a CORD-19 parse), .xml, .nxml or .tar, compressed or not"


@dataclass(frozen=True)
class Context:
    """A document: characters of answers count in ``text``."""

    name: str
    text: str
    title: str = ""


@dataclass
class Names:
    """The names of documents that were given so far."""

    taken: set[str] = field(default_factory=set)
    _repeats: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)
    """By source, lines of plain text that are documents because nobody said what is one."""

    def note_lines(self, progress: Progress) -> None:
        """Say once that lines are documents, if that may surprise."""
        sources = [source for source, n in self.lines.items() if n > 1]
        if sources:
            where = sources[0] if len(sources) == 1 else f"{sources[0]} and {len(sources) - 1} more"
            progress.note(
                f"{where}: {counted(self.lines.total(), 'line')} of plain text, a document each; --sample-by document "
                "reads a file as one document"
            )

    def name(self, document: Document) -> str:
        """The document's own id; where another has that, or it has none, its place, such as ``a.jsonl:3``; and where
        another has that too, such as the second article of an XML file, its place and ``#2``.
        """
        known = [Decoder().without_surrogates(name, name) for name in (document.id, document.name)]
        found = next((name for name in known if name and name not in self.taken), "")
        while not found or found in self.taken:
            self._repeats[known[1]] += 1
            found = f"{known[1]}#{self._repeats[known[1]] + 1}"
        self.taken.add(found)
        return found


def read_texts(
    source: str,
    progress: Progress,
    format: str | None = None,  # noqa: A002  (the option's name)
    fields: tuple[str, ...] = ("text",),
    names: Names | None = None,
    sample_by: SampleBy | None = None,
) -> Iterator[Context]:
    """The documents of a file, a folder, a tar archive, or of standard input for ``-``, lazily.

    ``format`` is one of ``DOCUMENT_FORMATS``; ``None`` goes by the suffix, and takes standard input as text. In
    plain text ``sample_by`` says what a document is, by default a line. It is verbatim: line breaks inside stay as they
    are, only a byte order mark is dropped, and white space around a line or a paragraph.
    An object of JSON lines is one, the strings in ``fields`` verbatim with a line break between; a row of a table, a
    CORD-19 parse and an article are the paragraphs that the corpus readers find in them, one per line.

    A document is called by its own id (``id``, ``document_id``, ``doc_id`` or ``paper_id`` of a record), else by its
    path as it was given, with the line or the archive's member where there is one; see ``Names``, which several
    sources can share, so that no two names are the same.

    Files of unknown kinds and documents without text are left out, with a warning that counts them. Raises
    ``MissingError`` if nothing is there, ``UsageError`` for an unknown format, and ``InputError`` if the format
    is unknown, a file is broken, there is no text at all, or ``source`` holds questions.
    """
    kind = _kind(source, format)
    return _texts(
        _Source(source, kind, is_by_name=format is None, fields=tuple(fields), sample_by=sample_by),
        names or Names(),
        progress,
    )


@dataclass(frozen=True)
class _Source:
    path: str
    kind: str
    is_by_name: bool
    """Whether the kind follows from the name."""
    fields: tuple[str, ...]
    sample_by: SampleBy | None

    @property
    def name(self) -> str:
        """What messages call it."""
        return input_name(self.path)

    def is_line(self, name: str) -> bool:
        """Whether the document of this name is a line of plain text."""
        kind = {"auto": format_of(name.rpartition(":")[0])}.get(self.kind, self.kind)
        return kind == "text"


def _kind(source: str, given: str | None) -> str:
    """The format of a source that is there."""
    known = tuple(name for name in DOCUMENT_FORMATS if name != "auto") if source == STDIN else DOCUMENT_FORMATS
    if given is not None and given not in known:
        what = "standard input" if source == STDIN else "a document"
        raise UsageError(f"{given!r} is not a format of {what}", f"the formats are {', '.join(known)}")
    if source == STDIN:
        return given or "text"
    is_remote = "://" in source
    if not is_remote and not Path(source).exists():
        raise MissingError(f"{source} does not exist", "check the path")
    if not is_remote:
        require_names(source)
    found = given or ("auto" if Path(source).is_dir() else format_of(source))
    if not found:
        raise InputError(
            f"{source}: cannot tell the format from the name",
            f"give a file named {_SUFFIXES}, or say --format, one of {', '.join(known)}",
        )
    return found


def _texts(source: _Source, names: Names, progress: Progress) -> Iterator[Context]:
    decoder = Decoder()
    counts = decoder.counts
    note_terminal(source.path, progress)
    try:
        for document in read_whole(source.path, source.kind, source.fields, decoder, source.sample_by or "line"):
            text = decoder.without_surrogates("\n".join(document.lines), document.name)
            is_first = not counts["documents"] + counts["empty"]
            if is_first and source.is_by_name and source.kind == "text" and text.startswith('{"'):
                raise InputError(
                    f"{source.name} looks like JSON lines, not like text", "give --format jsonl, or --format text"
                )
            if text.strip():
                counts["documents"] += 1
                if source.sample_by is None and source.is_line(document.name):
                    names.lines[source.name] += 1
                yield Context(names.name(document), text, decoder.without_surrogates(document.title, document.name))
            else:
                counts["empty"] += 1
    except InputError:
        if source.path != STDIN and Path(source.path).is_file() and _is_empty(source.path):
            raise _without_text(source, Counter()) from None
        refuse_squad(source.path)
        raise
    if not counts["documents"]:
        raise _without_text(source, counts)
    _warn(source, decoder, progress)


def _without_text(source: _Source, counts: Counter[str]) -> InputError:
    if skipped := counts["skipped_files"]:
        return InputError(
            f"{source.name} has no text: skipped {counted(skipped, 'file')} of unknown kinds",
            "name theirs with --format",
        )
    if counts["empty"] > 1:
        return InputError(f"{source.name} has no text in {counts['empty']:,} documents", "give some that have text")
    what = "has no files" if source.kind == "auto" and not counts["empty"] else "is empty"
    return InputError(f"{source.name} {what}", "give a document with text")


def _warn(source: _Source, decoder: Decoder, progress: Progress) -> None:
    counts = decoder.counts
    if skipped := counts["skipped_files"]:
        progress.warn(f"{source.name}: skipped {counted(skipped, 'file')} of unknown kinds; name theirs with --format")
    warn_symlinks(source.name, counts, progress)
    if empty := counts["empty"]:
        progress.warn(f"{source.name}: left out {counted(empty, 'document')} without text")
    decoder.warn_replaced(source.name, progress)


def _is_empty(path: str) -> bool:
    with open_binary(path) as stream:
        return not stream.read(1)
