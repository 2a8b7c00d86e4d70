"""What a configuration says of each field, and the checks of configurations and of the arguments of functions."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, wraps
from os import PathLike, fsencode, fspath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from greenadapt.errors import InputError, UsageError

BASIC = "basic"
"""Marks the annotation of an option that the short help shows."""


@dataclass(frozen=True)
class Option:
    """How a field looks as an option; a field without one is not on the command line."""

    help: str
    names: str = ""
    """Names of the option, such as ``--a/--no-a`` or ``--learning-rate --lr``; by default made from the field's."""
    panel: str | None = None
    paper: str = ""
    """What the paper uses that the stage implements."""
    unset: str = ""
    """What ``None`` or an empty value stands for."""
    is_path: bool = False
    """Whether its texts are paths."""
    parse: Callable[[str, str], Any] | None = None
    """Turns text and the option's name into a value, for what a command line cannot hold as it is."""
    shown: str | None = None
    """The default as such a text."""
    negated: bool = False
    """Whether the option is a flag that switches the field off."""
    needs: tuple[str, ...] = ()
    """Options such as ``--memory`` or ``--rows blend``: without any of them this one has no effect."""


@dataclass(frozen=True)
class Field:
    """A field of a configuration that is an option."""

    name: str
    kind: Any
    """Its type, with ranges."""
    default: Any
    option: Option
    is_basic: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the option."""
        return tuple(self.option.names.split()) or (f"--{self.name.replace('_', '-')}",)

    @property
    def option_name(self) -> str:
        """The option in messages."""
        return self.names[0].split("/")[0]

    @property
    def parameter(self) -> str:
        """The option as a name in Python."""
        return self.option_name.removeprefix("--").replace("-", "_")


@cache
def option_fields(config: Any) -> dict[str, Field]:
    """The fields of a configuration class that are options, by name."""
    found = {}
    for field in fields(config):
        kind, *marks = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
        option = next((mark for mark in marks if isinstance(mark, Option)), None)
        if option is not None:
            ranges = [mark for mark in marks if mark not in (option, BASIC)]
            kind = Annotated[kind, *ranges] if ranges else kind
            found[field.name] = Field(field.name, kind, field.default, option, BASIC in marks)
    return found


def refuse_without_effect(field: Field, values: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` if none of the options that ``field`` needs is among ``values``, by parameter."""
    said = []
    for need in field.option.needs:
        option, *wanted = need.split()
        value = values.get(option.removeprefix("--").replace("-", "_"))
        if value in wanted if wanted else value:
            return
        said += [f"this is {option} {value}"] if wanted and value is not None else []
    if field.option.needs:
        missing = ", ".join([f"{field.option_name} has no effect without {' or '.join(field.option.needs)}", *said])
        raise UsageError(missing, f"give that too, or leave out {field.option_name}")


class Checked:
    """A frozen dataclass whose values are checked against its types and ranges; pydantic is imported by the first."""

    def __post_init__(self) -> None:
        """Raise what ``check_types`` raises."""
        check_types(self)


def check_types(values: Any) -> None:
    """Compare the values of a dataclass with its types and ranges.

    Raises ``UsageError`` with the option, the value and what is allowed.
    """
    from pydantic import ValidationError

    config: Any = type(values)
    try:
        _model(config).model_validate({field.name: getattr(values, field.name) for field in fields(config)})
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False, include_context=False)
    else:
        _check_paths(values)
        return
    name = str(first["loc"][0])
    known = option_fields(config).get(name)
    option = known.option_name if known else f"{config.__name__}.{name}"
    [kind] = [field.type for field in fields(config) if field.name == name]
    is_inside = len(first["loc"]) > 1 and first["type"] != "missing"
    words = allowed(_of_items(kind) if is_inside else kind)
    if first["type"].startswith(("greater_", "less_")):
        words = words.split(", ", 1)[1]
    raise UsageError(f"{option} {'has' if is_inside else 'is'} {first['input']!r}, must be {words}")


def _check_paths(values: Any) -> None:
    config: Any = type(values)
    for name, field in option_fields(config).items():
        value = getattr(values, name)
        for path in value if field.option.is_path else (value,):
            if isinstance(path, PathLike) or field.option.is_path:
                check_path(path, field.option_name)


def check_path(path: Any, name: str) -> None:
    """Raise ``UsageError`` for what no file can be called: a NUL, or a character that no encoding has."""
    text = fspath(path)
    with suppress(UnicodeEncodeError):
        if b"\0" not in fsencode(text):
            return
    raise UsageError(f"{name} is {text!r}, which no file can be called", "correct it")


@cache
def _model(config: Any) -> Any:
    """A pydantic model with the fields of a configuration."""
    from pydantic import ConfigDict, create_model

    types: dict[str, Any] = {field.name: (field.type, ...) for field in fields(config)}
    return create_model(config.__name__, __config__=ConfigDict(strict=True, allow_inf_nan=False), **types)


_KINDS = {int: "a whole number", float: "a finite number", bool: "True or False", str: "text"}
_GENERIC: dict[Any, str] = {PathLike: "a path", Iterable: "an iterable", Mapping: "a mapping", Sequence: "a list"}


def allowed(kind: Any) -> str:
    """What a type with ranges allows."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = {
            name: value
            for name in ("ge", "gt", "le", "lt")
            for mark in arguments[1:]
            if (value := getattr(mark, name, None)) is not None
        }
        return ", ".join([allowed(arguments[0]), *([_range(**limits)] if limits else [])])
    if origin is Literal:
        return f"one of {', '.join(arguments)}" if len(arguments) > 1 else str(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(allowed(each) for each in arguments if each is not NoneType)
    if origin in _GENERIC:
        return _GENERIC[origin]
    if origin is tuple:
        return f"a tuple, each of it {allowed(arguments[0])}"
    return _KINDS.get(kind) or f"a {kind.__name__}"


def _range(**limits: float) -> str:
    if limits.keys() == {"ge", "le"}:
        return f"from {limits['ge']} to {limits['le']}"
    names = {"ge": "at least", "gt": "above", "le": "at most", "lt": "under"}
    return " and ".join(f"{names[name]} {value}" for name, value in limits.items())


def _of_items(kind: Any) -> Any:
    """The type of the items of a tuple."""
    while get_origin(kind) is not tuple:
        kind = get_args(kind)[0]
    return get_args(kind)[0]


def without_ranges(kind: Any) -> Any:
    """The type as typer knows it."""
    if get_origin(kind) is Annotated:
        return without_ranges(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(map(without_ranges, get_args(kind)))]  # noqa: UP007
    return kind


def by_option(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The keys of a TOML table as names of options: ``min_count`` and ``min-count`` are both ``min-count``.

    Raises ``InputError``, which begins with ``where``, if two keys are the same option.
    """
    written: dict[str, str] = {}
    for key in table:
        other = written.setdefault(key.replace("_", "-"), key)
        if other != key:
            raise InputError(f"{where} sets the same option twice, as {other} and as {key}", "leave out one of them")
    return {option: table[key] for option, key in written.items()}


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_bytes(text: str, option: str = "--max-memory") -> int:
    """``500M`` → bytes (binary units); raises ``UsageError``."""
    number, unit = text.strip().upper().removesuffix("IB").removesuffix("B"), ""
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], number[-1]
    try:
        value = int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise UsageError(f"{option} is {text!r}, must be a number of bytes such as 500M or 8G") from None
    if value <= 0:
        raise UsageError(f"{option} is {text!r}, must be more than nothing")
    return value


_DURATION = re.compile(r"(?:(\d{1,3})w)?(?:(\d{1,4})d)?(?:(\d{1,6})h)?(?:(\d{1,8})m)?(?:(\d{1,9})s?)?")
_SECONDS = (604_800, 86_400, 3_600, 60, 1)


def parse_duration(text: str, option: str = "--max-time") -> float:
    """``1h30m`` → seconds; a number without a unit is seconds. Raises ``UsageError``."""
    match = _DURATION.fullmatch(text.strip().lower())
    parts = match.groups(default="0") if match else ()
    seconds = sum(int(part) * unit for part, unit in zip(parts, _SECONDS, strict=False))
    if seconds <= 0:
        raise UsageError(f"{option} is {text!r}, must be a time such as 45m, 1h30m, 30d or 4w")
    return float(seconds)


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """``6,12`` → (6, 12); raises ``UsageError``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} is {text!r}, must be numbers such as 6,12") from None


_P = ParamSpec("_P")
_R = TypeVar("_R")
_LONGEST = 60
"""Characters of a value in a message."""


_EXPLICIT: ContextVar[Mapping[str, Any]] = ContextVar("explicit")


def checked_call(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function``, which raises ``UsageError`` for an argument that it does not have, or that its annotation does not
    allow.

    numpy's scalars count as Python's. What an iterable yields is not looked at. pydantic is imported by the first call.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        parameters = _signature(function).parameters
        _refuse_unknown(function, parameters, kwargs)
        bound = _signature(function).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind, annotation = parameters[name].kind, parameters[name].annotation
            if kind is inspect.Parameter.VAR_KEYWORD or annotation is inspect.Parameter.empty:
                continue
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(check_value(name, one, annotation) for one in value)
            else:
                bound.arguments[name] = check_value(name, value, annotation)
        token = _EXPLICIT.set(
            {
                name: value
                for name, value in bound.arguments.items()
                if value is not None or parameters[name].default is not None
            }
        )
        try:
            return function(*bound.args, **bound.kwargs)
        finally:
            _EXPLICIT.reset(token)

    return call


def explicit_arguments() -> dict[str, Any]:
    """The arguments that the running ``checked_call`` function was called with, by name, as opposed to its defaults.

    ``None`` where it is the default counts as a default.
    """
    return {**_EXPLICIT.get()}


def _refuse_unknown(
    function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], arguments: Iterable[str]
) -> None:
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    call = function.__qualname__.removesuffix(".__init__").split(".")[-1]
    for name in arguments:
        if name not in parameters:
            import difflib

            near = difflib.get_close_matches(name, parameters, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "see its help()"
            raise UsageError(f"{call} has no argument {name}", hint)


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def check_value(name: str, value: Any, annotation: Any) -> Any:
    """``value``, a scalar of numpy as Python's; raises ``UsageError`` if it is not as ``annotation`` says."""
    from pydantic import ValidationError

    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    try:
        _adapter(annotation).validate_python(value)
    except ValidationError as error:
        words = allowed(annotation)
        if error.errors(include_url=False, include_input=False)[0]["type"].startswith(("greater_", "less_")):
            words = words.split(", ", 1)[-1]
        hint = "call collect() first" if hasattr(value, "collect") else ""  # a lazy frame of polars
        raise UsageError(f"{name} is {_shown(value)}, must be {words}", hint) from None
    kinds: set[Any] = {*map(get_origin, get_args(annotation))}
    # What may be an iterable may also be a text.
    if isinstance(value, PathLike) or (isinstance(value, str) and PathLike in kinds and Iterable not in kinds):
        check_path(value, name)
    return value


@cache
def _adapter(annotation: Any) -> Any:
    from pydantic import ConfigDict, InstanceOf, TypeAdapter

    if is_dataclass(annotation):
        return TypeAdapter(InstanceOf[annotation])
    return TypeAdapter(annotation, config=ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False))


def _shown(value: Any) -> str:
    if value is None or isinstance(value, str | int | float | bytes):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"of type {type(value).__name__}"
