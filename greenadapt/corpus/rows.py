"""Read rows of CSV, TSV, JSON lines and JSON arrays, with their line numbers."""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, NamedTuple

from greenadapt.config import TableFormat
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, json_kind, pluralize
from greenadapt.store.files import Json

Lines = Iterator[tuple[int, str]]
# NaN, which Python and pandas write for a missing value, is none.
_JSON = json.JSONDecoder(parse_constant=lambda name: None if name == "NaN" else float(name))


def parse_json(text: str, where: str, first_line: int = 1, hint: str = "correct it: one JSON object per line") -> Any:
    """The value of a JSON text that begins on ``first_line`` of the file ``where``; ``None`` for ``NaN``.

    Raises ``InputError`` with line and column if it is not JSON.
    """
    try:
        return _JSON.decode(text.rstrip())  # so that an error at the end is on the last line with text
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

    An array is read at once, within the decoder's limit of a document. Raises ``InputError`` with line and column if
    it is neither, and with the line or entry of what is not an object, unless ``decoder`` is lenient.
    """
    first_number, first_line = next(((number, line) for number, line in lines if line.strip()), (0, ""))
    start = first_line.lstrip()[:1]
    if start == "[":
        text = decoder.join(chain([(first_number, first_line)], lines), path)
        entries, escapes = parse_json(text, path, first_number), _escapes_surrogates(text)
        for i, entry in enumerate(entries, start=1):
            where = f"{path}, entry {i}"
            try:
                row = _check(entry, where, escapes, decoder)
            except InputError as error:
                decoder.skip(i, error)
            else:
                yield JsonRow(where, row, None, len(text) // len(entries))
        return
    if start not in ("{", "") and not decoder.lenient:
        where = f"{path}, line {first_number}, column {first_line.index(start) + 1}"
        hint = "give JSON lines, or CSV or TSV in a file named .csv or .tsv"
        decoder.skip(first_number, InputError(f"{where} is {start!r}, not the start of an object", hint))
    for number, line in chain([(first_number, first_line)], lines):
        if line.strip():
            where = f"{path}:{number}"
            try:
                row = _check(parse_json(line, path, number), where, _escapes_surrogates(line), decoder)
            except InputError as error:
                decoder.skip(number, error)
            else:
                yield JsonRow(where, row, number, len(line))


def _escapes_surrogates(text: str) -> bool:
    """Whether JSON may contain an escaped lone surrogate, which no tokenizer accepts."""
    return "\\ud" in text.lower()


def _check(value: Any, where: str, escapes: bool, decoder: Decoder) -> Json:
    row = require_object(value, where)
    return decoder.replace_record_surrogates(row, where) if escapes else row


class TableRow(NamedTuple):
    """The cells of a row of CSV or TSV, with its first and last line, which differ if a cell has line breaks."""

    line: int
    last_line: int
    cells: list[str]


_EXCEL_SEPARATOR = re.compile(r"sep=([,;\t|])")
_DEFAULT = TableFormat()
_SAMPLE = 1 << 20
"""Characters from the first quotation mark on that decide whether a TSV file quotes."""


def table_rows(
    lines: Lines, path: str, separator: str, decoder: Decoder, form: TableFormat = _DEFAULT, *, hint: str
) -> tuple[list[str], Iterator[TableRow]]:
    """The names of the columns of a table, and its rows, with a cell for each; blank lines are skipped.

    In CSV quotation marks enclose cells (RFC 4180), and where the first line has no comma, it tells the separator, as
    does Excel's line ``sep=;`` before it. A cell ``NaN`` or ``nan``, which pandas writes for no value, is empty. In
    TSV quotation marks are text (IANA). They enclose cells only if, in the megabyte after the first one, every mark
    that opens a cell is closed at a cell's end, and no cell contains whole rows. No names if the file is empty. Raises
    ``InputError`` with its line for quotation marks that later contradict this or are not closed, for a row of another
    number of cells unless ``decoder`` is lenient, and for a cell longer than the decoder's limit; ``hint`` says what to
    do about quotation marks.
    """
    numbered = _next_line(lines)
    if numbered is None:
        return list(form.columns), iter(())
    separator, numbered = _separator(separator, numbered, lines, path, has_header=not form.columns)
    lines = chain([numbered], lines)
    if form.quotes is None and separator == "\t":
        rows = _tsv_rows(lines, path, len(form.columns), decoder, hint)
    elif form.quotes is False:
        rows = _unquoted_rows(lines, separator)
    else:
        rows = _quoted_rows(lines, path, separator, None, decoder, hint)
    names = list(form.columns) or next(rows).cells
    if repeated := {name for name in names if name and names.count(name) > 1}:
        raise InputError(f"{path} has several columns named {', '.join(sorted(repeated))}", "rename all but one")
    needed = f"need {len(names)}" if form.columns else f"the header {len(names)}"
    is_quoted = separator != "\t" and form.quotes is not False
    how = ("quote cells that hold a separator" if is_quoted else "correct it") + ", or give JSON lines"

    def whole_rows() -> Iterator[TableRow]:
        for row in rows:
            if len(row.cells) == len(names):
                is_missing = "NaN" in row.cells or "nan" in row.cells
                yield row if not is_missing else row._replace(cells=[_without_nan(cell) for cell in row.cells])
            elif any(map(str.strip, row.cells)):
                columns = pluralize(len(row.cells), "column")
                decoder.skip(row.line, InputError(f"{path}:{row.line} has {columns}, {needed}", how))

    return names, whole_rows()


def _next_line(lines: Lines) -> tuple[int, str] | None:
    """The next line that is not blank, with its number."""
    return next(((number, line) for number, line in lines if line.strip(" \r\n")), None)


def _separator(
    separator: str, first: tuple[int, str], lines: Lines, path: str, *, has_header: bool
) -> tuple[str, tuple[int, str]]:
    """The separator of a table, and its first line, which Excel's line ``sep=;`` is not."""
    number, line = first
    if separator == ",":
        if named := _EXCEL_SEPARATOR.fullmatch(line.rstrip("\r\n")):
            return named[1], _next_line(lines) or (number + 1, "")
        unquoted = re.sub(r'"[^"]*"?', "", line)
        return next((character for character in ",;\t|" if character in unquoted), ","), first
    if has_header and "\t" not in line and (unexpected := re.search("[,;|]", line)):
        raise InputError(
            f"{path}, line {number}: the header has {unexpected[0]!r} instead of tabs", "name it .csv, or correct it"
        )
    return separator, first


def _without_nan(cell: str) -> str:
    return "" if cell in ("NaN", "nan") else cell


def _tsv_rows(lines: Lines, path: str, n_cells: int, decoder: Decoder, hint: str) -> Iterator[TableRow]:
    """Yield the rows of TSV, read as its first megabyte from the first quotation mark on is written."""
    sample: list[tuple[int, str]] = []
    for number, line in lines:
        if line.startswith('"') or '\t"' in line:
            sample.append((number, line))
            break
        for row in _unquoted_rows([(number, line)], "\t"):
            n_cells = n_cells or len(row.cells)
            yield row

    def record() -> Iterator[tuple[int, str]]:
        yield from sample
        for numbered in lines:
            sample.append(numbered)
            yield numbered

    n_characters, is_quoted = 0, True
    try:
        for row in _quoted_rows(record(), path, "\t", n_cells, decoder, hint):
            n_characters += sum(map(len, row.cells))
            if n_characters > _SAMPLE:
                break
    except InputError:
        is_quoted = False
    lines = chain(sample, lines)
    yield from _quoted_rows(lines, path, "\t", n_cells, decoder, hint) if is_quoted else _unquoted_rows(lines, "\t")


def _quoted_rows(
    lines: Lines, path: str, separator: str, n_cells: int | None, decoder: Decoder, hint: str
) -> Iterator[TableRow]:
    """Yield the rows of a table in which quotation marks enclose cells.

    Unless ``n_cells`` is ``None``, refuses a cell with line breaks if each of its lines has as many cells as a row:
    ``n_cells``, or those of the first row if that is 0.
    """
    limit = decoder.max_bytes
    csv.field_size_limit(limit)
    held: list[tuple[int, str]] = []

    def read_lines() -> Iterator[str]:
        for numbered in lines:
            held.append(numbered)
            yield numbered[1]

    try:
        for cells in csv.reader(read_lines(), delimiter=separator, strict=True):
            begin, end = held[0][0], held[-1][0]
            if n_cells and end > begin and all(line.count(separator) == n_cells - 1 for _, line in held):
                raise InputError(
                    f"{path}, line {begin}: a quotation mark encloses lines up to {end}, which are rows of "
                    f"{pluralize(n_cells, 'column')} themselves",
                    hint,
                )
            n_cells = len(cells) if n_cells == 0 else n_cells
            yield TableRow(begin, end, cells)
            held.clear()
    except csv.Error as error:
        begin, end = held[0][0], held[-1][0]
        where, kind = f"{path}, line {end}", "CSV" if separator != "\t" else "TSV"
        if "field larger" in str(error):  # perhaps a quotation mark that is never closed
            decoder.check_size(limit + 1, where)
        text = "".join(line for _, line in held)
        opened = re.search(rf'(?:\A|{re.escape(separator)})"(?:[^"]|"")*+\Z', text)
        if opened and "end of data" in str(error):
            line = begin + sum(end <= opened.start() for end in accumulate(len(line) for _, line in held))
            raise InputError(f"{path}, line {line} is not {kind} (a quotation mark is never closed)", hint) from None
        row = f", in the row from line {begin}" if end > begin else ""
        raise InputError(f"{where} is not {kind} ({error}){row}", hint) from None


def _unquoted_rows(lines: Iterable[tuple[int, str]], separator: str) -> Iterator[TableRow]:
    """Yield the rows of a table in which quotation marks are text."""
    for number, line in lines:
        if text := line.rstrip("\r\n"):
            yield TableRow(number, number, text.split(separator))
