"""Labelled rows from JSON, CSV, TSV and the hub; labels as numbers."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from greenadapt.config import TableFormat
from greenadapt.corpus.opening import HUB_ID, SEPARATORS, data_suffix, is_hub_id, open_binary
from greenadapt.corpus.rows import json_rows, table_rows
from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, MissingError, first_line, list_names, pluralize, require
from greenadapt.progress import Progress
from greenadapt.store.files import Json


def records(source: str, progress: Progress, table: TableFormat | None = None) -> Iterator[tuple[str, Json]]:
    """Each row with its location, such as ``train.jsonl:12``.

    ``source`` is a file, which may be compressed (gz, bz2, xz, zst): CSV or TSV with a header, according to its suffix,
    or else JSON lines or a JSON array of objects, according to its first character. If there is no such file, it is a
    data set of the Hugging Face hub, ``owner/name[/configuration][:split]`` such as ``nyu-mll/glue/sst2:train``; class
    numbers are replaced by names, and code in the data set is never run. The split is optional if there is only one.
    ``table`` is the format of a CSV or TSV file that its suffix does not determine; it does not affect other sources.

    Raises ``MissingError`` if the source does not exist, and ``InputError`` with line and column if it is broken or
    empty.
    """
    is_empty = True
    read = _hub_rows(source, progress) if is_hub_id(source) else _file_rows(source, table or TableFormat(), progress)
    for where, row in read:
        is_empty = False
        yield where, row
    if is_empty:
        raise InputError(f"{source} has no rows", "give a file with examples")


def field(row: Json, name: str, where: str, hint: str = "") -> Any:
    """The value of the field ``name``; raises ``InputError`` with the existing fields if there is no such field."""
    if name not in row:
        raise InputError(f"{where} has no field {name}, it has: {list_names(row)}", hint)
    return row[name]


def refuse_repeated(ids: Iterable[tuple[str, str]]) -> None:
    """Raise ``InputError`` with both locations if two of the (id, location) pairs have the same id."""
    locations: dict[str, str] = {}
    for name, where in ids:
        if name in locations:
            raise InputError(f"{where} has the id {name!r}, as {locations[name]} has", "give each question its own")
        locations[name] = where


_QUOTING = "double quotation marks within a quoted cell, set quotes = false in a tasks file, or give JSON lines"


def _file_rows(path: str, table: TableFormat, progress: Progress) -> Iterator[tuple[str, Json]]:
    separator = SEPARATORS.get(data_suffix(path))
    leniency = "set skip-broken = true in a tasks file" if separator and table != TableFormat() else ""
    decoder = Decoder(lenient=table.skip_broken and separator is not None, leniency=leniency)
    with open_binary(path) as stream:
        lines = decoder.lines(stream, path)
        if separator:
            names, rows = table_rows(lines, path, separator, decoder, table, hint=_QUOTING)
            for row in rows:
                yield f"{path}:{row.line}", dict(zip(names, row.cells, strict=True))
            if n_broken := decoder.counts["broken_lines"]:
                n_rows = pluralize(n_broken, "row that does", "rows that do")
                what = f"not have {pluralize(len(names), 'column')}, the first on line {decoder.first_broken}"
                progress.warn(f"{path}: left out {n_rows} {what}")
        else:
            yield from ((row.where, row.fields) for row in json_rows(lines, path, decoder))
    decoder.warn_replaced(path, progress)


def _hub_rows(source: str, progress: Progress) -> Iterator[tuple[str, Json]]:
    progress.note(f"{source} is no file, reading it as a data set of the Hugging Face hub")
    for i, row in enumerate(named_rows(_load_hub(source))):
        yield f"{source}, row {i}", row


def named_rows(data: Any) -> Iterator[Json]:
    """The rows of a ``datasets.Dataset``, with class numbers replaced by names."""
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
    except Exception as error:  # errors of datasets, the hub, the network or a file format
        raise MissingError(
            f"{source} is no file, and no data set that the hub gives ({first_line(error)})",
            "check the path, or write owner/name/configuration:split",
        ) from None
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise InputError(
            f"{source} has the splits {', '.join(data)}", f"name one of them, such as {source}:{next(iter(data))}"
        )
    return next(iter(data.values()))


def _with_names(feature: Any, value: Any) -> Any:
    """``value`` with class numbers, also in lists, replaced by names; -1 means no class."""
    if isinstance(value, list) and hasattr(feature, "feature"):
        return [_with_names(feature.feature, item) for item in value]
    if hasattr(feature, "int2str") and isinstance(value, int):
        return feature.int2str(value) if value >= 0 else None
    return value


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS = re.compile(r"([0-9]{1,18})")


def parse_number(label: str | float) -> float | None:
    """The value of a label that is a finite number, or the text of one; else ``None``."""
    if isinstance(label, str) and not _NUMBER.fullmatch(label):
        return None
    try:
        value = float(label)
    except OverflowError:  # integers in JSON have any size
        return None
    return value if np.isfinite(value) else None


def sort_naturally(labels: Collection[str]) -> list[str]:
    """Sort ``labels`` naturally: numbers by value, also within names (``type2`` before ``type10``)."""
    if all(_NUMBER.fullmatch(label) for label in labels):
        return sorted(labels, key=lambda label: (float(label), label))
    return sorted(labels, key=lambda label: [int(p) if i % 2 else p for i, p in enumerate(_DIGITS.split(label))])
