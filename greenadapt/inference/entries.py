"""What is predicted on, from a file or a pipe; GLUE's tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from greenadapt.config import TableFormat
from greenadapt.corpus.opening import (
    CONLL_SUFFIXES,
    JSON_SUFFIXES,
    STDIN,
    TABLE_SUFFIXES,
    data_suffix,
    note_terminal,
    open_input,
)
from greenadapt.corpus.rows import Lines, json_rows
from greenadapt.corpus.text import ArrivingLines, Decoder
from greenadapt.errors import GreenadaptError, UsageError
from greenadapt.progress import Progress
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task
from greenadapt.tasks.conll import ConllRow, conll_sentences
from greenadapt.tasks.questions import read_questions
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
