"""Read rows of CSV, TSV, JSON lines and JSON arrays, with their line numbers."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, json_kind
from greenadapt.storage.files import Json

Lines = Iterator[tuple[int, str]]
_FIELD_LIMIT = 2**31 - 1


def parse_json(text: str, where: str, first_line: int = 1, hint: str = "correct it: one JSON object per line") -> Any:
    """The value of a JSON text that begins on ``first_line`` of the file ``where``.

    Raises ``InputError`` with line and column if it is not JSON.
    """
    try:
        return json.loads(text.rstrip())  # so that an error at the end is on the last line with text
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InputError(
            f"{where}, line {line}, column {error.colno} is not JSON ({error.msg})",
            hint,
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}, line {first_line} is unreadable JSON ({error})", hint) from None


def require_object(value: Any, where: str) -> Json:
    """Return ``value`` if it is a JSON object; raises ``InputError`` otherwise."""
    if not isinstance(value, dict):
        raise InputError(f"{where} is {json_kind(value)}, not an object", 'need one such as {"text": "…"}')
    return value


@dataclass(frozen=True)
class JsonRow:
    """An object of JSON lines or of a JSON array."""

    where: str
    fields: Json
    line: int | None
    """Line number, from 1; ``None`` in an array."""
    size: int
    """Approximate number of characters."""


def json_rows(lines: Lines, path: str, decoder: Decoder) -> Iterator[JsonRow]:
    """Yield the objects of JSON lines, lazily, or of a JSON array, detected by the first character.

    Raises ``InputError`` with line and column if it is neither.
    """
    first_number, first_line = next(((number, line) for number, line in lines if line.strip()), (0, ""))
    start = first_line.lstrip()[:1]
    if start == "[":
        text = decoder.joined(chain([(first_number, first_line)], lines), path)
        entries, escapes = parse_json(text, path, first_number), _escapes_surrogates(text)
        for i, entry in enumerate(entries, start=1):
            where = f"{path}, entry {i}"
            yield JsonRow(where, _checked(entry, where, escapes, decoder), None, len(text) // len(entries))
        return
    if start not in ("{", ""):
        raise InputError(
            f"{path}, line {first_number}, column {first_line.index(start) + 1} is {start!r}, "
            "not the start of an object",
            "give JSON lines, or CSV or TSV in a file named .csv or .tsv",
        )
    for number, line in chain([(first_number, first_line)], lines):
        if line.strip():
            where = f"{path}:{number}"
            row = _checked(parse_json(line, path, number), where, _escapes_surrogates(line), decoder)
            yield JsonRow(where, row, number, len(line))


def _escapes_surrogates(text: str) -> bool:
    """Whether JSON may contain an escaped lone surrogate, which no tokenizer accepts."""
    return "\\ud" in text.lower()


def _checked(value: Any, where: str, escapes: bool, decoder: Decoder) -> Json:
    row = require_object(value, where)
    return decoder.record_without_surrogates(row, where) if escapes else row


class TableRow(NamedTuple):
    """The fields of a row of CSV or TSV, with its first and last line, which differ if a field has line breaks."""

    line: int
    last_line: int
    fields: list[str]


def table_rows(
    lines: Lines, path: str, separator: str, decoder: Decoder, *, strict: bool = False, hint: str
) -> Iterator[TableRow]:
    """Yield the rows of a table in which quotation marks enclose fields.

    ``strict`` refuses a stray quotation mark, which otherwise encloses all lines up to the next one. Raises
    ``InputError`` for broken CSV, and for fields longer than the decoder's limit.
    """
    limit = min(decoder.limits.max_document_bytes, _FIELD_LIMIT)
    csv.field_size_limit(limit)
    rows = csv.reader((line for _, line in lines), delimiter=separator, strict=strict)
    begin = 1
    try:
        for fields in rows:
            yield TableRow(begin, rows.line_num, fields)
            begin = rows.line_num + 1
    except csv.Error as error:
        where = f"{path}, line {rows.line_num}"
        if "field larger" in str(error):  # perhaps a quotation mark that is never closed
            decoder.check_size(limit + 1, where)
        raise InputError(f"{where} is not {'CSV' if separator == ',' else 'TSV'} ({error})", hint) from None


def unquoted_rows(lines: Lines, separator: str) -> Iterator[TableRow]:
    """Yield the rows of a table in which quotation marks are text; an empty line has no fields."""
    for number, line in lines:
        text = line.rstrip("\r\n")
        yield TableRow(number, number, text.split(separator) if text else [])
