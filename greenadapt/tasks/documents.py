"""Whole documents to look answers up in, of every format that corpora have, and the questions asked of them."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from greenadapt.corpus.readers import read_whole
from greenadapt.corpus.reading import STDIN, Decoder, Document, data_suffix, open_binary, open_input
from greenadapt.corpus.recipes import FORMATS, format_of
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.progress import Progress
from greenadapt.tasks.records import JSON_SUFFIXES, TABLE_SUFFIXES, Row, json_rows, records
from greenadapt.tasks.squad_files import holds_squad

DOCUMENT_FORMATS = tuple(name for name in FORMATS if name != "pydocs")
_SUFFIXES = ".txt, .jsonl, .csv, .tsv, .json (a CORD-19 parse), .xml, .nxml or .tar, compressed or not"
_LIKE_JSON = re.compile(r'\s*(\{\s*"|\[\s*([{"]|$))')


@dataclass(frozen=True)
class Text:
    """A document: characters of answers count in ``text``."""

    name: str
    text: str


@dataclass
class Names:
    """The names of documents that were given so far."""

    taken: set[str] = field(default_factory=set)
    _repeats: Counter[str] = field(default_factory=Counter)

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
) -> Iterator[Text]:
    """The documents of a file, a folder, a tar archive, or of standard input for ``-``, as they are asked for.

    ``format`` is one of ``DOCUMENT_FORMATS``; ``None`` tells it by the suffix, and takes standard input for text. A
    file of plain text is one document, verbatim: its line breaks stay as they are, only a byte order mark is dropped.
    An object of JSON lines is one, the strings in ``fields`` verbatim with a line break between; a row of a table, a
    CORD-19 parse and an article are the paragraphs that the corpus readers find in them, a line each.

    A document is called by its own id (``id``, ``document_id``, ``doc_id`` or ``paper_id`` of a record), else by its
    path as it was given, with the line or the archive's member where there is one; see ``Names``, which several
    sources can share, so that no two names are the same.

    Files of unknown kinds and documents without text are left out, with a warning that counts them. Raises
    ``MissingError`` where nothing is there, ``UsageError`` for an unknown format, and ``InputError`` where the format
    cannot be told, a file is broken, there is no text at all, or ``source`` holds questions.
    """
    kind = _kind(source, format)
    return _texts(_Source(source, kind, is_told=format is None, fields=tuple(fields)), names or Names(), progress)


@dataclass(frozen=True)
class Asked:
    """A question without a context."""

    id: str
    question: str


def read_asked(source: str, progress: Progress) -> list[Asked]:
    """The questions of a file, or of standard input for ``-``.

    They are the field ``question``, or else ``text``, of JSON lines, of one JSON array of objects or of a table, or
    lines of text, of which empty ones are skipped. The ``id`` of one that has none is its place, such as ``q.txt:3``.
    Raises ``MissingError`` where there is no such file, ``InputError`` where it is broken, has no questions, or two of
    the same id, naming both places.
    """
    try:
        found = list(_asked(source, progress))
    except InputError:
        if _is_file(source) and holds_squad(source):
            raise _squad_error(source) from None
        raise
    if not found:
        raise InputError(f"{source} has no questions", "give one a line, or JSON lines with the field question")
    places: dict[str, str] = {}
    for where, asked in found:
        if asked.id in places:
            raise InputError(
                f"{where} has the id {asked.id!r}, as {places[asked.id]} has", "give each question its own"
            )
        places[asked.id] = where
    return [asked for _, asked in found]


@dataclass(frozen=True)
class _Source:
    path: str
    kind: str
    is_told: bool
    """Whether the kind is told by the name."""
    fields: tuple[str, ...]

    @property
    def name(self) -> str:
        """What messages call it."""
        return "standard input" if self.path == STDIN else self.path


def _kind(source: str, given: str | None) -> str:
    """The format of a source that is there."""
    known = tuple(name for name in DOCUMENT_FORMATS if name != "auto") if source == STDIN else DOCUMENT_FORMATS
    if given is not None and given not in known:
        what = "standard input" if source == STDIN else "a document"
        raise UsageError(f"{given!r} is no format of {what}", f"the formats are {', '.join(known)}")
    if source == STDIN:
        return given or "text"
    is_remote = "://" in source
    if not is_remote and not Path(source).exists():
        raise MissingError(f"{source} does not exist", "check the path")
    told = given or ("auto" if Path(source).is_dir() else format_of(source))
    if not told:
        raise InputError(
            f"{source}: the format cannot be told from the name",
            f"give a file named {_SUFFIXES}, or say --format, one of {', '.join(known)}",
        )
    return told


def _texts(source: _Source, names: Names, progress: Progress) -> Iterator[Text]:
    decoder = Decoder()
    counts = decoder.counts
    try:
        for document in read_whole(source.path, source.kind, source.fields, decoder):
            text = decoder.without_surrogates("\n".join(document.lines), document.name)
            if source.is_told and source.kind == "text" and text.startswith('{"'):
                raise InputError(
                    f"{source.name} looks like JSON lines, not like text", "give --format jsonl, or --format text"
                )
            if text.strip():
                counts["documents"] += 1
                yield Text(names.name(document), text)
            else:
                counts["empty"] += 1
    except InputError:
        explained = _explained(source)
        if explained is None:
            raise
        raise explained from None
    if not counts["documents"]:
        raise _without_text(source, counts)
    _warn(source, counts, progress)


def _explained(source: _Source) -> InputError | None:
    """What is wrong with a file that no reader takes where that is that it is empty, or that it has questions."""
    if not _is_file(source.path):
        return None
    with open_binary(source.path) as stream:
        if not stream.read(1):
            return _without_text(source, Counter())
    return _squad_error(source.path) if holds_squad(source.path) else None


def _squad_error(source: str) -> InputError:
    return InputError(f"{source} is SQuAD's JSON, questions with their contexts", "give it with --data")


def _without_text(source: _Source, counts: Counter[str]) -> InputError:
    if skipped := counts["skipped_files"]:
        return InputError(
            f"{source.name} has no text: {skipped:,} files of unknown kinds were skipped", "name theirs with --format"
        )
    if counts["empty"] > 1:
        return InputError(f"{source.name} has no text in {counts['empty']:,} documents", "give some that have text")
    what = "has no files" if source.kind == "auto" and not counts["empty"] else "is empty"
    return InputError(f"{source.name} {what}", "give a document with text")


def _warn(source: _Source, counts: Counter[str], progress: Progress) -> None:
    if skipped := counts["skipped_files"]:
        progress.warn(f"{source.name}: {skipped:,} files of unknown kinds were skipped; name theirs with --format")
    if empty := counts["empty"]:
        progress.warn(f"{source.name}: {empty:,} documents have no text and are left out")
    _warn_replaced(source.name, counts, progress)


def _warn_replaced(name: str, counts: Counter[str], progress: Progress) -> None:
    if replaced := counts["replaced"]:
        progress.warn(f"{name}: {replaced:,} byte sequences or characters are not UTF-8, replaced by U+FFFD")


def _is_file(source: str) -> bool:
    """Whether ``source`` can be read a second time."""
    return source != STDIN and Path(source).is_file()


def _asked(source: str, progress: Progress) -> Iterator[tuple[str, Asked]]:
    """The questions, each with its place."""
    if data_suffix(source) in TABLE_SUFFIXES:
        for where, row in records(source, progress):
            yield where, _asked_record(row, where)
        return
    decoder = Decoder()
    with open_input(source) as (stream, name):
        lines = decoder.lines(stream, name)
        first = list(_up_to_text(lines))
        if first and (data_suffix(source) in JSON_SUFFIXES or _LIKE_JSON.match(first[-1][1])):
            for entry in json_rows(chain(first, lines), name, decoder):
                yield entry.where, _asked_record(entry.fields, entry.where)
        else:
            for number, line in chain(first, lines):
                if text := line.strip():
                    yield f"{name}:{number}", Asked(f"{name}:{number}", text)
    _warn_replaced(name, decoder.counts, progress)


def _up_to_text(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines up to the first that is not empty."""
    for number, line in lines:
        yield number, line
        if line.strip():
            return


def _asked_record(record: Row, where: str) -> Asked:
    question = next((record[name] for name in ("question", "text") if record.get(name) is not None), None)
    if question is None:
        raise InputError(f"{where}: no 'question'", f"it has: {', '.join([*record][:20])}")
    if not isinstance(question, str):
        raise InputError(f"{where}: the question is a {type(question).__name__}, not a string")
    name = where if record.get("id") is None else record["id"]
    if type(name) not in (str, int):
        raise InputError(f"{where}: 'id' is a {type(name).__name__}, not a string or an integer")
    return Asked(str(name), question)
