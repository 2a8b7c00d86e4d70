"""Turn the arguments of Python calls into what stages read: a session, and files of texts and records."""

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from greenadapt.config import SessionOptions
from greenadapt.corpus.recipes import keep
from greenadapt.errors import InputError, UsageError
from greenadapt.fields import Field, option_fields, refuse_without_effect
from greenadapt.progress import Progress, Silent
from greenadapt.store.files import Json

if TYPE_CHECKING:
    from greenadapt.stages.session import Session


def make_session(
    options: SessionOptions, progress: bool | Progress, out: str | PathLike[str] | None = None
) -> "Session":
    """The session of one call, which its stages share; ``out`` replaces that of ``options``."""
    from greenadapt.stages.session import Session

    options = options if out is None else replace(options, out=Path(out))
    return Session.of(options, make_progress(progress))


def refuse_unused(*configs: Any) -> None:
    """Raise ``UsageError`` for a field that the caller set and that has no effect without another."""
    values: Json = {}
    explicit: list[Field] = []
    for config in configs:
        kind: Any = type(config)
        fields = option_fields(kind)
        values |= {field.parameter: getattr(config, name) for name, field in fields.items()}
        explicit += [field for name, field in fields.items() if name in config.explicit]
    for field in explicit:
        refuse_without_effect(field, values)


def make_progress(progress: bool | Progress) -> Progress:
    """Sends notes and bars to stderr, as the commands do, nowhere, or where the caller says."""
    if not isinstance(progress, bool):
        return progress
    if progress:
        from greenadapt.cli.output.console import make_progress

        return make_progress()

    return OnlyWarnings()


Data = str | PathLike[str] | Iterable[Any]
"""A path, texts, records (dictionaries), a ``datasets.Dataset``, or a data frame of pandas or polars."""


def is_named(data: Data) -> TypeGuard[str | PathLike[str]]:
    """Whether ``data`` is a path or a name, not text: a string with a line break is a text."""
    return isinstance(data, PathLike) or (isinstance(data, str) and "\n" not in data)


def corpus_of(data: Data, root: Path) -> str:
    """The corpus for the stages: a path or a name as it is; texts or records are written into ``root`` under a name."""
    return fspath(data) if is_named(data) else _keep(data, root, "corpus")[0]


def labelled_sources(data: Data | None, root: Path, argument: str) -> tuple[str, ...]:
    """Files (or ids of data sets) of labelled examples: paths as they are; records are written into ``root``.

    ``argument`` is the name of the caller's argument, for messages.
    """
    if data is None:
        return ()
    if isinstance(data, str | PathLike):
        return (fspath(data),)
    if isinstance(data, list | tuple) and data and all(isinstance(path, str | PathLike) for path in data):
        return tuple(map(fspath, data))
    return (str(_keep(data, root, argument, takes_texts=False)[1]),)


def _keep(data: Data, root: Path, argument: str, *, takes_texts: bool = True) -> tuple[str, Path]:
    """The name and the file of texts or records in ``root``; raises ``InputError`` if there are none."""
    rows = [fspath(data)] if isinstance(data, str | PathLike) else data
    kept = keep(_lines(rows, argument, takes_texts=takes_texts), root, "records")
    if kept is None:
        raise InputError(f"{argument} has no {'texts' if takes_texts else 'examples'}", "give records, or a path")
    return kept


def single_labelled_source(data: Data | None, root: Path, argument: str) -> str | None:
    """``labelled_sources`` of at most one file; raises ``UsageError`` if there are several."""
    sources = labelled_sources(data, root, argument)
    if len(sources) > 1:
        raise UsageError(f"{argument} has {len(sources)} files", "give one")
    return sources[0] if sources else None


def rows_of(data: Iterable[Any], argument: str, *, takes_texts: bool) -> Iterator[str | Json]:
    """The records of ``data`` in order, read once and lazily; texts are as they are.

    Raises ``UsageError`` for data without records, ``InputError`` for an item that is neither a text nor a record.
    """
    for number, row in enumerate(_rows(data, argument)):
        if isinstance(row, str) and takes_texts:
            yield str(row)
        elif isinstance(row, Mapping):
            yield {str(name): value for name, value in row.items()}
        else:
            kind = "a text" if isinstance(row, str) else f"of type {type(row).__name__}"
            needed = "a text or a dictionary" if takes_texts else "a dictionary"
            raise InputError(f"{argument}: item {number} is {kind}, not {needed}", "give records, or paths")


def _rows(data: Any, argument: str) -> Iterable[Any]:
    """The rows of ``data``; libraries are recognized by the attributes of their objects, and never imported."""
    if isinstance(data, Mapping):
        named = ", ".join(map(str, list(data)[:5]))
        raise UsageError(f"{argument} is a dictionary ({named})", "give one of its values, or a list of records")
    if hasattr(data, "iter_rows") and hasattr(data, "columns"):  # polars
        return data.iter_rows(named=True)
    if hasattr(data, "itertuples") and hasattr(data, "columns"):  # pandas
        names = list(data.columns)
        return (dict(zip(names, row, strict=True)) for row in data.itertuples(index=False, name=None))
    if hasattr(data, "features") and hasattr(data, "column_names"):  # datasets
        from greenadapt.tasks.records import named_rows

        return named_rows(data)
    if not isinstance(data, Iterable):
        kind = "a lazy frame: call collect() first" if hasattr(data, "collect") else f"of type {type(data).__name__}"
        raise UsageError(f"{argument} is {kind}", "give a path, a list of texts or records, or a data frame")
    return data


def _lines(data: Iterable[Any], argument: str, *, takes_texts: bool) -> Iterator[bytes]:
    """JSON lines."""
    for number, row in enumerate(rows_of(data, argument, takes_texts=takes_texts)):
        try:
            record = {"text": row} if isinstance(row, str) else plain_record(row)
        except TypeError as error:
            raise InputError(f"{argument}: item {number} cannot be written as JSON ({error})", "convert it") from None
        try:
            yield f"{json.dumps(record, ensure_ascii=False)}\n".encode()
        except UnicodeEncodeError:  # a lone surrogate, which the readers replace and count
            yield f"{json.dumps(record)}\n".encode()


def plain_record(record: Json) -> Json:
    """The record in JSON's types: arrays as lists, missing numbers (NaN) as ``None``, dates as texts."""
    return {name: _plain(value) for name, value in record.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str | bool | int):
        return value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas' own for what is missing
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return _plain(value.tolist())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"it has a {type(value).__name__}")


class OnlyWarnings(Silent):
    """Warnings as Python's own, which ``warnings.simplefilter`` can silence too; no notes and no bars."""

    def warn(self, message: str) -> None:
        """Warn with ``UserWarning``."""
        warnings.warn(message, UserWarning, stacklevel=2)
