"""Keyword arguments as configurations, and texts and records of a Python program as the files that stages read."""

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, get_args, get_origin

from greenadapt.config import SessionOptions
from greenadapt.corpus.recipes import keep_records
from greenadapt.errors import InputError, UsageError
from greenadapt.fields import Field, explicit_arguments, option_fields, refuse_without_effect, without_ranges
from greenadapt.progress import Progress, Silent
from greenadapt.store.files import Json

if TYPE_CHECKING:
    from greenadapt.stages.session import Session


class Arguments:
    """The arguments that the running ``checked_call`` function was called with, as configurations of the classes
    ``configs``; raises ``UsageError`` for one that has no effect without another.
    """

    def __init__(self, *configs: Any, preset: str | None = None) -> None:
        fields = {field.parameter: field for config in configs for field in option_fields(config).values()}
        paper = {name: field.option.paper for name, field in fields.items() if field.option.paper is not None}
        self.explicit = (paper if preset else {}) | explicit_arguments()
        """Without the defaults; with a ``preset`` it has the paper's values, too."""
        values = {name: field.default for name, field in fields.items()} | self.explicit
        for name in self.explicit:
            if name in fields:
                refuse_without_effect(fields[name], values)

    def make(self, config: Any, *, without: Sequence[str] = (), **defaults: Any) -> Any:
        """The configuration of the class ``config``; the fields ``without`` are no arguments of this call, and
        ``defaults`` are values of fields that it has in place of the configuration's.

        Raises ``UsageError`` for a value that is not allowed.
        """
        values = {
            name: _value(field, self.explicit[field.parameter])
            for name, field in option_fields(config).items()
            if name not in without and field.parameter in self.explicit
        }
        return config(**{**defaults, **values})

    def named(self, config: Any) -> frozenset[str]:
        """The fields of the class ``config`` that are explicit arguments."""
        return frozenset(name for name, field in option_fields(config).items() if field.parameter in self.explicit)


def _value(field: Field, value: Any) -> Any:
    """The value of a field for the argument ``value``: a tuple for a list, bytes for ``"8G"``, a path for a text."""
    option, kind = field.option, without_ranges(field.kind)
    kinds = get_args(kind) or (kind,)
    if isinstance(value, str) and option.parse is not None:
        return option.parse(value, field.option_name)
    if get_origin(kind) is tuple and isinstance(value, str | PathLike | list | tuple):
        values = [value] if isinstance(value, str | PathLike) else value
        return tuple(fspath(value) if isinstance(value, PathLike) else value for value in values)
    if isinstance(value, str) and Path in kinds:
        return Path(value)
    if type(value) is int and float in kinds:
        return float(value)  # as on the command line: the hash of a configuration tells 1 from 1.0
    return value


def make_session(options: SessionOptions, progress: bool | Progress) -> "Session":
    """The session of one call, which its stages share."""
    from greenadapt.stages.session import Session

    return Session.of(options, shown_progress(progress))


def shown_progress(progress: bool | Progress) -> Progress:
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
    return fspath(data) if is_named(data) else _write_texts(data, root, "corpus")[0]


def text_source(data: Data, root: Path, argument: str) -> str:
    """The file of texts: a path as it is; texts or records are written into ``root``."""
    return fspath(data) if is_named(data) else str(_write_texts(data, root, argument)[1])


def _write_texts(data: Data, root: Path, argument: str) -> tuple[str, Path]:
    """The name and the file of texts or records in ``root``."""
    texts = [fspath(data)] if isinstance(data, str | PathLike) else data
    written = keep_records(_lines(texts, argument, takes_texts=True), root)
    if written is None:
        raise InputError(f"{argument} has no texts", "give texts, records or a path")
    return written


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
    written = keep_records(_lines(data, argument, takes_texts=False), root)
    if written is None:
        raise InputError(f"{argument} has no examples", "give records such as dictionaries, or a path")
    return (str(written[1]),)


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


def check_texts(texts: Iterable[Any], progress: Progress) -> list[str]:
    """The texts as a tokenizer takes them: lone surrogates are replaced, with a warning that counts them.

    Raises ``InputError`` naming an item that is no text.
    """
    from greenadapt.corpus.text import Decoder

    decoder, checked = Decoder(), []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"item {number} is of type {type(text).__name__}, not a text", "give texts")
        checked.append(decoder.without_surrogates(text, f"item {number}"))
    decoder.warn_replaced("the texts", progress)
    return checked
