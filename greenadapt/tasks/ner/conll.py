"""Sentences with tags from CoNLL files and from records with ``tokens`` and ``tags``."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from greenadapt.corpus.opening import open_binary
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError
from greenadapt.tasks.ner.entities import iob2, is_tag
from greenadapt.tasks.ner.sentences import Sentence

_SCHEMES = "O, or B-, I-, E-, S-, L- or U- and a type"
_TAG_FIELDS = ("tags", "ner_tags")
_BLANKS = " \t\r\n"
"""What is left out at the end of a line; other white space may be the end of a word."""


def read_conll(path: str, decoder: Decoder) -> Iterator[Sentence]:
    """The sentences of a file with one word per line, word first and tag last, tabs or spaces between, empty lines
    between sentences; lines of ``-DOCSTART-`` are left out.

    Raises ``InputError`` naming line and column, ``MissingError`` if there is no such file.
    """
    with open_binary(path) as stream:
        for rows in conll_sentences(decoder.lines(stream, path), path):
            tags = [_tag(row, path) for row in rows]
            yield Sentence(tuple(row.columns[0] for row in rows), tuple(iob2(tags)))


@dataclass(frozen=True)
class ConllRow:
    """A line with a word."""

    line: int
    """From 1."""
    columns: list[str]
    """At least one; the first is the word, which is not empty."""


def conll_sentences(lines: Iterable[tuple[int, str]], path: str) -> Iterator[list[ConllRow]]:
    """The lines of each sentence of CoNLL columns, see ``read_conll``, with or without a tag.

    Raises ``InputError`` with the line where a word is empty.
    """
    rows: list[ConllRow] = []
    for number, text in lines:
        line = text.rstrip(_BLANKS) if text.strip() else ""
        # A tab parts the columns of a line that has one, so that a word there may hold a space.
        columns = line.split("\t") if "\t" in line else [column for column in line.split(" ") if column]
        if line and columns[0] != "-DOCSTART-":
            if not columns[0]:
                raise InputError(f"{path}, line {number}: the word is empty", "write a word before the tab")
            rows.append(ConllRow(number, columns))
        elif rows:
            yield rows
            rows = []
    if rows:
        yield rows


def _tag(row: ConllRow, path: str) -> str:
    """The tag of a line; raises ``InputError`` if it has none."""
    tag = row.columns[-1].rstrip()
    if len(row.columns) < 2:
        raise InputError(
            f"{path}, line {row.line}: one column, need a word and its tag",
            "a line is a word, a tab or spaces, and a tag; sentences are parted by empty lines",
        )
    if not is_tag(tag):
        raise InputError(f"{path}, line {row.line}, column {len(row.columns)}: {tag!r} is not a tag", _need())
    return tag


def tagged_record(record: dict[str, Any], where: str) -> Sentence:
    """The sentence of an object with ``tokens`` and ``tags`` (or ``ner_tags``); ``InputError`` names ``where``."""
    words = tokens_of(record, where)
    field = next((name for name in _TAG_FIELDS if name in record), None)
    if field is None:
        raise InputError(
            f"{where} has no tags", 'give an object such as {"tokens": ["a", "rash"], "tags": ["O", "B-X"]}'
        )
    tags = record[field]
    if not isinstance(tags, list):
        raise InputError(f"{where}: {field} is not a list of strings", _need())
    if len(tags) != len(words):
        raise InputError(f"{where}: {len(words)} tokens and {len(tags)} {field}", "give each token one tag")
    for position, tag in enumerate(tags, start=1):
        if isinstance(tag, int):
            raise InputError(f"{where}: tag {position} is the number {tag}, which has no name", _need())
        if not isinstance(tag, str) or not is_tag(tag):
            raise InputError(f"{where}: {tag!r} (tag {position}) is not a tag", _need())
    return Sentence(words, tuple(iob2(tags)))


def tokens_of(record: dict[str, Any], where: str) -> tuple[str, ...]:
    """The strings in ``tokens``; raises ``InputError`` naming ``where`` for anything else."""
    tokens = record.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        problem = "has no tokens" if tokens is None else "has tokens that are not a list of strings"
        raise InputError(f"{where} {problem}", 'give an object such as {"tokens": ["a", "rash"]}')
    decoder = Decoder()
    return tuple(decoder.without_surrogates(token, where) for token in tokens)


def _need() -> str:
    return f"need {_SCHEMES}"
