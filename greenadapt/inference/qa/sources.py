"""Questions without contexts, from files."""

import re
from collections.abc import Iterator
from itertools import chain

from greenadapt.corpus.opening import JSON_SUFFIXES, TABLE_SUFFIXES, data_suffix, note_terminal, open_input
from greenadapt.corpus.rows import json_rows
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, json_kind
from greenadapt.progress import Progress
from greenadapt.storage.files import Json
from greenadapt.tasks.questions import Question, refuse_squad
from greenadapt.tasks.records import records, refuse_repeated

_LIKE_JSON = re.compile(r'\s*(\{\s*"|\[\s*([{"]|$))')


def read_asked(source: str, progress: Progress) -> list[Question]:
    """The questions of a file, or of standard input for ``-``, without contexts.

    They are the field ``question``, or else ``text``, of JSON lines, of one JSON array of objects or of a table, or
    lines of text, of which empty ones are skipped. The ``id`` of one that has none is its place, such as ``q.txt:3``.
    Raises ``MissingError`` if there is no such file, ``InputError`` if it is broken, has no questions, or two of
    the same id, naming both places.
    """
    try:
        found = list(_asked(source, progress))
    except InputError:
        refuse_squad(source)
        raise
    if not found:
        raise InputError(f"{source} has no questions", "give one per line, or JSON lines with the field question")
    refuse_repeated((asked.id, where) for where, asked in found)
    return [asked for _, asked in found]


def _asked(source: str, progress: Progress) -> Iterator[tuple[str, Question]]:
    """The questions, each with its place."""
    if data_suffix(source) in TABLE_SUFFIXES:
        for where, row in records(source, progress):
            yield where, _asked_record(row, where)
        return
    decoder = Decoder()
    note_terminal(source, progress)
    with open_input(source) as (stream, name):
        lines = decoder.lines(stream, name)
        first = list(_up_to_text(lines))
        if first and (data_suffix(source) in JSON_SUFFIXES or _LIKE_JSON.match(first[-1][1])):
            for entry in json_rows(chain(first, lines), name, decoder):
                yield entry.where, _asked_record(entry.fields, entry.where)
        else:
            for number, line in chain(first, lines):
                if text := line.strip():
                    yield f"{name}:{number}", Question(f"{name}:{number}", text, "")
    decoder.warn_replaced(name, progress)


def _up_to_text(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines up to the first that is not empty."""
    for number, line in lines:
        yield number, line
        if line.strip():
            return


def _asked_record(record: Json, where: str) -> Question:
    question = next((record[name] for name in ("question", "text") if record.get(name) is not None), None)
    if question is None:
        raise InputError(f"{where}: no 'question'", f"it has: {', '.join([*record][:20])}")
    if not isinstance(question, str):
        raise InputError(f"{where}: the question is {json_kind(question)}, not a string", "correct it")
    if not question.strip():
        raise InputError(f"{where}: the question is empty", "correct it")
    name = where if record.get("id") is None else record["id"]
    if type(name) not in (str, int):
        raise InputError(f"{where}: 'id' is {json_kind(name)}, not a string or an integer", "correct it")
    return Question(str(name), question, "")
