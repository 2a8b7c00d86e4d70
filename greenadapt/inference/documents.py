"""Whole documents from files of any corpus format, with their names and titles."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from greenadapt.config import SampleBy
from greenadapt.corpus.opening import STDIN, input_name, note_terminal, open_binary, require_names
from greenadapt.corpus.readers import read_whole, warn_symlinks
from greenadapt.corpus.recipes import FORMATS, format_of
from greenadapt.corpus.text import Decoder, Document
from greenadapt.errors import InputError, MissingError, UsageError, counted
from greenadapt.progress import Progress
from greenadapt.tasks.questions import refuse_squad

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
