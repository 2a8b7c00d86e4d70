"""Labelled rows from JSON, CSV, TSV and the hub; labels as numbers."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from greenadapt.config import TableFormat
from greenadapt.corpus.opening import HUB_ID, SEPARATORS, data_suffix, input_errors, is_hub_id, open_binary
from greenadapt.corpus.rows import Lines, json_rows, table_rows, unquoted_rows
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, MissingError, counted, first_line, require
from greenadapt.progress import Progress
from greenadapt.storage.files import Json

_NAMES_SHOWN = 20


def records(source: str, progress: Progress, table: TableFormat | None = None) -> Iterator[tuple[str, Json]]:
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


def field(row: Json, name: str, where: str, hint: str = "") -> Any:
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


def _file_rows(path: str, table: TableFormat, progress: Progress) -> Iterator[tuple[str, Json]]:
    separator = SEPARATORS.get(data_suffix(path))
    decoder = Decoder()
    with input_errors(path), open_binary(path) as stream:
        lines = decoder.lines(stream, path)
        if separator:
            yield from _labelled(lines, path, separator, table, decoder, progress)
        else:
            yield from ((row.where, row.fields) for row in json_rows(lines, path, decoder))
    decoder.warn_replaced(path, progress)


_QUOTING = "double quotation marks within a quoted field, set quotes = false in a tasks file, or give JSON lines"


def _labelled(
    lines: Lines, path: str, separator: str, table: TableFormat, decoder: Decoder, progress: Progress
) -> Iterator[tuple[str, Json]]:
    if table.quotes:
        rows = table_rows(lines, path, separator, decoder, strict=True, hint=_QUOTING)
    else:
        rows = unquoted_rows(lines, separator)
    header = None if table.columns else next(rows, None)
    names = header.fields if header else list(table.columns)
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{path} has several columns named {', '.join(sorted(repeated))}", "rename all but one")
    broken = []
    for line, _, row in rows:
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


def _hub_rows(source: str, progress: Progress) -> Iterator[tuple[str, Json]]:
    progress.note(f"{source} is no file, reading it as a data set of the Hugging Face hub")
    data = _load_hub(source)
    for i, row in enumerate(named_rows(data)):
        yield f"{source}, row {i}", row


def named_rows(data: Any) -> Iterator[Json]:
    """The rows of a ``datasets.Dataset``, with the names of classes for their numbers."""
    features = data.features or {}
    for row in data:
        yield {name: _with_names(features.get(name), value) for name, value in row.items()}


def _load_hub(source: str) -> Any:
    require("hub", "datasets", by=f"{source} does not exist, and a data set of the hub", otherwise="check the path")
    import datasets

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
        raise MissingError(
            f"{source} is no file, and no data set that the hub gives ({first_line(error)})",
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
