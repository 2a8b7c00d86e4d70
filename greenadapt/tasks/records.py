"""Labelled rows from JSON, CSV, TSV and the hub; labels as numbers."""

import csv
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from greenadapt.config import TableFormat
from greenadapt.corpus.opening import HUB_ID, SEPARATORS, Decoder, data_suffix, input_errors, is_hub_id, open_binary
from greenadapt.errors import InputError, MissingError
from greenadapt.progress import Progress
from greenadapt.wording import counted, json_kind

Row = dict[str, Any]


Lines = Iterator[tuple[int, str]]


_FIELD_LIMIT = 2**31 - 1


_NAMES_SHOWN = 20


def records(source: str, progress: Progress, table: TableFormat | None = None) -> Iterator[tuple[str, Row]]:
    """Where each row stands, such as ``train.jsonl:12``, and the row itself.

    ``source`` is a file, compressed (gz, bz2, xz, zst) or not: CSV or TSV with a header, told by the suffix, and else
    JSON lines or one JSON array of objects, told by the first character. Where no such file is there, it is a data set
    of the Hugging Face hub, written ``owner/name[/configuration][:split]`` such as ``nyu-mll/glue/sst2:train``; its
    class numbers become names, and code of its own is never run. A split may be left out where there is only one.
    ``table`` says how a CSV or TSV is written that is not as its suffix says; others are read as they are.

    Raises ``MissingError`` where nothing is there, and ``InputError`` with line and column where it is broken or empty.
    """
    is_empty = True
    read = _hub_rows(source, progress) if is_hub_id(source) else _file_rows(source, table or TableFormat(), progress)
    for where, row in read:
        is_empty = False
        yield where, row
    if is_empty:
        raise InputError(f"{source} has no rows", "give a file with examples")


def field(row: Row, name: str, where: str, hint: str = "") -> Any:
    """The value of one field; raises ``InputError`` with the fields there are where it is not one of them."""
    if name not in row:
        more = f" and {len(row) - _NAMES_SHOWN} more" if len(row) > _NAMES_SHOWN else ""
        raise InputError(f"{where} has no field {name}, it has: {', '.join([*row][:_NAMES_SHOWN])}{more}", hint)
    return row[name]


def refuse_repeated(ids: Iterable[tuple[str, str]]) -> None:
    """Raise ``InputError``, with the places of both, where an id, which comes with its place, is there twice."""
    places: dict[str, str] = {}
    for name, where in ids:
        if name in places:
            raise InputError(f"{where} has the id {name!r}, as {places[name]} has", "give each question its own")
        places[name] = where


def parse_json(text: str, where: str, first_line: int = 1) -> Any:
    """The value of a JSON text that begins on ``first_line`` of the file ``where``.

    Raises ``InputError`` with line and column where it is none.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InputError(
            f"{where}, line {line}, column {error.colno} is not JSON ({error.msg})",
            "correct it: one JSON object a line",
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}, line {first_line} is not JSON that can be read ({error})") from None


def _file_rows(path: str, table: TableFormat, progress: Progress) -> Iterator[tuple[str, Row]]:
    separator = SEPARATORS.get(data_suffix(path))
    decoder = Decoder()
    with input_errors(path), open_binary(path) as stream:
        lines = decoder.lines(stream, path)
        if separator:
            yield from _table_rows(lines, path, separator, table, progress)
        else:
            yield from ((row.where, row.fields) for row in json_rows(lines, path, decoder))
    decoder.warn_replaced(path, progress)


@dataclass(frozen=True)
class JsonRow:
    """An object of JSON lines or of a JSON array."""

    where: str
    fields: Row
    line: int | None
    """From 1; ``None`` in an array."""
    size: int
    """About how many characters it has."""


def json_rows(lines: Lines, path: str, decoder: Decoder) -> Iterator[JsonRow]:
    """The objects of JSON lines, as they are asked for, or of one JSON array, told by the first character.

    Raises ``InputError`` with line and column where it is something else.
    """
    first_number, first = next(((number, line) for number, line in lines if line.strip()), (0, ""))
    begin = first.lstrip()[:1]
    if begin == "[":
        text = first + "".join(line for _, line in lines)
        entries = parse_json(text, path, first_number)
        for i, entry in enumerate(entries, start=1):
            where = f"{path}, entry {i}"
            yield JsonRow(where, _checked(entry, where, text, decoder), None, len(text) // len(entries))
        return
    if begin not in ("{", ""):
        raise InputError(
            f"{path}, line {first_number}, column {first.index(begin) + 1} is {begin!r}, which begins no JSON object",
            "give JSON lines, or CSV or TSV in a file named .csv or .tsv",
        )
    for number, line in chain([(first_number, first)], lines):
        if line.strip():
            where = f"{path}:{number}"
            yield JsonRow(where, _checked(parse_json(line, path, number), where, line, decoder), number, len(line))


def _checked(row: Any, where: str, text: str, decoder: Decoder) -> Row:
    if not isinstance(row, dict):
        raise InputError(f"{where} is {json_kind(row)}, not an object", 'need one such as {"text": "…"}')
    if "\\ud" in text.lower():  # JSON can escape a lone surrogate, which no tokenizer takes
        row = json.loads(decoder.without_surrogates(json.dumps(row, ensure_ascii=False), where))
    checked: Row = row
    return checked


def _table_rows(
    lines: Lines, path: str, separator: str, table: TableFormat, progress: Progress
) -> Iterator[tuple[str, Row]]:
    rows = (_quoted if table.quotes else _unquoted)(lines, path, separator)
    names = list(table.columns) or next(rows, (1, []))[1]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{path} has several columns named {', '.join(sorted(repeated))}", "rename all but one")
    broken = []
    for line, row in rows:
        if len(row) == len(names):
            yield f"{path}:{line}", dict(zip(names, row, strict=True))
        elif row and table.skip_broken:
            broken.append(line)
        elif row:
            wanted = f"need {len(names)}" if table.columns else f"the header {len(names)}"
            how = "quote fields that hold a separator" if table.quotes else "correct it, set skip-broken = true"
            raise InputError(f"{path}:{line} has {counted(len(row), 'column')}, {wanted}", f"{how}, or give JSON lines")
    if broken:
        first = f"the first on line {broken[0]}"
        left = counted(len(broken), "row that does", "rows that do")
        progress.warn(f"{path}: left out {left} not have {counted(len(names), 'column')}, {first}")


def _unquoted(lines: Lines, path: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The line and the fields of each row, in which quotation marks are text; an empty line has no fields."""
    for number, line in lines:
        text = line.rstrip("\r\n")
        yield number, text.split(separator) if text else []


def _quoted(lines: Lines, path: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The first line and the fields of each row, in which quotation marks enclose fields, which can hold line ends."""
    csv.field_size_limit(_FIELD_LIMIT)
    # Strict: a stray quotation mark would else swallow the lines up to the next one.
    rows = csv.reader((line for _, line in lines), delimiter=separator, strict=True)
    begin = 1
    try:
        for row in rows:
            yield begin, row
            begin = rows.line_num + 1
    except csv.Error as error:
        kind = "CSV" if separator == "," else "TSV"
        raise InputError(
            f"{path}, line {rows.line_num} is not {kind} ({error})",
            "double quotation marks within a quoted field, set quotes = false in a tasks file, or give JSON lines",
        ) from None


def _hub_rows(source: str, progress: Progress) -> Iterator[tuple[str, Row]]:
    progress.note(f"{source} is no file, reading it as a data set of the Hugging Face hub")
    data = _load_hub(source)
    for i, row in enumerate(data):
        yield f"{source}, row {i}", {name: _with_names(data.features[name], value) for name, value in row.items()}


def _load_hub(source: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise MissingError(
            f"{source} does not exist, and to read it as a data set of the hub, datasets is not installed",
            'check the path, or pip install "greenadapt[hub]"',
        ) from None
    if int(datasets.__version__.split(".")[0]) < 4:
        raise MissingError(
            f"datasets {datasets.__version__} can run a data set's own code, which greenadapt never does",
            'pip install "greenadapt[hub]"',
        )
    match = HUB_ID.fullmatch(source)
    assert match is not None
    try:
        data = datasets.load_dataset(match["name"], match["configuration"], split=match["split"])
    except Exception as error:  # the library raises its own, the hub's, the network's and the formats' errors
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise MissingError(
            f"{source} is no file, and no data set that the hub gives ({reason})",
            "check the path, or write owner/name/configuration:split",
        ) from None
    return _one_split(data, source)


def _one_split(data: Any, source: str) -> Any:
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise InputError(
            f"{source} has the splits {', '.join(data)}", f"name one of them, such as {source}:{next(iter(data))}"
        )
    return next(iter(data.values()))


def _with_names(feature: Any, value: Any) -> Any:
    """``value`` with the names of classes for their numbers, in lists too; -1 stands for no class."""
    if isinstance(value, list) and hasattr(feature, "feature"):
        return [_with_names(feature.feature, item) for item in value]
    if hasattr(feature, "int2str") and isinstance(value, int):
        return feature.int2str(value) if value >= 0 else None
    return value


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


_DIGITS = re.compile(r"([0-9]{1,18})")


def as_number(label: str | float) -> float | None:
    """The finite number that a label is or spells, else ``None``."""
    if isinstance(label, str) and not _NUMBER.fullmatch(label):
        return None
    try:
        value = float(label)
    except OverflowError:  # JSON's integers have no end
        return None
    return value if np.isfinite(value) else None


def natural_order(labels: Collection[str]) -> list[str]:
    """``labels`` sorted as people do: numbers by value, and numbers within names too (``type2`` before ``type10``)."""
    if all(_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=lambda label: (float(label), label))
    return sorted(labels, key=lambda label: [int(p) if i % 2 else p for i, p in enumerate(_DIGITS.split(label))])
