"""Options of configuration fields, and the checks of configurations and of function arguments."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, wraps
from os import PathLike, fsencode, fspath
from types import UnionType
from typing import Annotated, Any, ClassVar, ParamSpec, Self, TypeVar, Union, get_args, get_origin

from greenadapt.errors import UsageError


@dataclass(frozen=True)
class Option:
    """How a field is an option of the command line; a field without it is not."""

    help: str
    names: str = ""
    """Names of the option, such as ``--a/--no-a`` or ``--learning-rate --lr``; empty: the field's name."""
    panel: str | None = None
    """The panel in the help; ``None``: that of the class, if any."""
    paper: Any = None
    """The value in the paper that the stage implements, set by ``--preset paper``."""
    unset: str = ""
    """The meaning of ``None`` or an empty value."""
    is_path: bool = False
    """Whether its strings are paths."""
    parse: Callable[[str, str], Any] | None = None
    """Parses a string, such as ``4G``; the second argument is the option's name for error messages."""
    default_text: str | None = None
    """The default as such a string."""
    negated: bool = False
    """Whether the option is a flag that switches the field off."""
    needs: str = ""
    """An option such as ``--rows map`` without which this option has no effect; empty: that of the class, if any."""


@dataclass(frozen=True)
class Field:
    """A field of a configuration that is an option."""

    name: str
    kind: Any
    """Type with ranges."""
    default: Any
    option: Option

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.option.names.split()) or (f"--{self.name.replace('_', '-')}",)

    @property
    def option_name(self) -> str:
        """The name of the option in messages."""
        return self.names[0].split("/")[0]

    @property
    def parameter(self) -> str:
        """The name of the parameter of a Python function."""
        return self.option_name.removeprefix("--").replace("-", "_")


@cache
def option_fields(config: Any) -> dict[str, Field]:
    """The fields of a configuration class that are options, by name."""
    options = {}
    for field in fields(config):
        kind, *marks = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
        option = next((mark for mark in marks if isinstance(mark, Option)), None)
        if option is not None:
            ranges = [mark for mark in marks if mark is not option]
            kind = Annotated[kind, *ranges] if ranges else kind
            option = replace(option, panel=option.panel or config.PANEL, needs=option.needs or config.NEEDS)
            options[field.name] = Field(field.name, kind, field.default, option)
    return options


def parameters_of(*configs: Any) -> tuple[str, ...]:
    """The parameters of all options of the configurations."""
    return tuple(field.parameter for config in configs for field in option_fields(config).values())


def refuse_without_effect(field: Field, values: Mapping[str, Any]) -> None:
    """Raise ``UsageError`` if the option that ``field`` needs is not among ``values``, by parameter."""
    option, _, expected = field.option.needs.partition(" ")
    value = values.get(option.removeprefix("--").replace("-", "_"))
    if not option or (value == expected if expected else value):
        return
    current = f", this is {option} {value}" if expected and value is not None else ""
    message = f"{field.option_name} has no effect without {field.option.needs}{current}"
    raise UsageError(message, f"add it, or leave out {field.option_name}")


class Config:
    """A frozen dataclass that checks its values against its types and ranges; the first instance imports pydantic."""

    PANEL: ClassVar[str | None] = None
    """The panel of options without their own."""
    NEEDS: ClassVar[str] = ""
    """An option such as ``--memory`` without which the options of the class have no effect."""
    explicit: ClassVar[frozenset[str]] = frozenset()
    """The fields that the caller set, as pydantic's ``model_fields_set``."""

    def __new__(cls, *values: Any, **named: Any) -> Self:
        config = super().__new__(cls)
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        object.__setattr__(config, "explicit", frozenset({*names[: len(values)], *named}))
        return config

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if a value does not fit, see ``check_types``."""
        check_types(self)


def check_types(values: Any) -> None:
    """Raise ``UsageError`` with the option, its value and the allowed values if the values of a dataclass do not fit
    its types and ranges.
    """
    config: Any = type(values)
    options = option_fields(config)
    for field in fields(config):
        value, option = getattr(values, field.name), options.get(field.name)
        name = option.option_name if option else f"{config.__name__}.{field.name}"
        _validate(name, value, field.type)
        paths = value if option and option.option.is_path else (value,) if isinstance(value, PathLike) else ()
        for path in paths:
            check_path(path, name)


def check_path(path: Any, name: str) -> None:
    """Raise ``UsageError`` if ``path`` has a NUL or a character that the file system cannot encode."""
    text = fspath(path)
    with suppress(UnicodeEncodeError):
        if b"\0" not in fsencode(text):
            return
    raise UsageError(f"{name} is {text!r}, which is not a possible file name", "correct it")


def without_ranges(kind: Any) -> Any:
    """The type without its ranges, for typer."""
    if get_origin(kind) is Annotated:
        return without_ranges(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(map(without_ranges, get_args(kind)))]  # noqa: UP007
    return kind


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
        raise UsageError(f"{option} is {text!r}, must be more than 0")
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


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """``word,tag`` → ("word", "tag")."""
    return tuple(part.strip() for part in text.split(","))


_P = ParamSpec("_P")
_R = TypeVar("_R")
_MAX_CHARACTERS = 60  # of a value in a message


def validate_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make ``function`` raise ``UsageError`` for an argument that its annotation does not allow.

    Scalars of numpy are converted to Python's. Items of an iterable are not checked. The first call imports pydantic.
    """

    signature = inspect.signature(function)
    parameters = signature.parameters

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind, annotation = parameters[name].kind, parameters[name].annotation
            if kind is inspect.Parameter.VAR_KEYWORD or annotation is inspect.Parameter.empty:
                continue
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(check_value(name, item, annotation) for item in value)
            else:
                bound.arguments[name] = check_value(name, value, annotation)
        return function(*bound.args, **bound.kwargs)

    return call


def check_value(name: str, value: Any, annotation: Any) -> Any:
    """``value``, with a scalar of numpy as Python's; raises ``UsageError`` if ``annotation`` does not allow it."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    _validate(name, value, annotation)
    kinds: set[Any] = {*map(get_origin, get_args(annotation))}
    # A string is a path, unless the parameter also takes an iterable.
    if isinstance(value, PathLike) or (isinstance(value, str) and PathLike in kinds and Iterable not in kinds):
        check_path(value, name)
    return value


def _validate(name: str, value: Any, annotation: Any) -> None:
    """Raise ``UsageError`` if ``annotation`` does not allow ``value``, or an item of a tuple."""
    from pydantic import ValidationError

    try:
        _adapter(annotation).validate_python(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
    else:
        return
    # The value or its first wrong item; a union has a problem for each of its members.
    given = max(problems, key=lambda problem: len(problem["loc"]))["input"]
    messages = [problem["msg"].removeprefix("Input should be ") for problem in problems if problem["input"] is given]
    hint = "call collect() first" if hasattr(value, "collect") else ""  # a lazy frame of polars
    verb = "is" if given is value else "has"
    raise UsageError(f"{name} {verb} {_describe(given)}, must be {' or '.join(dict.fromkeys(messages))}", hint)


@cache
def _adapter(annotation: Any) -> Any:
    from pydantic import ConfigDict, InstanceOf, TypeAdapter

    if is_dataclass(annotation):
        return TypeAdapter(InstanceOf[annotation])
    return TypeAdapter(annotation, config=ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False))


def _describe(value: Any) -> str:
    if value is None or isinstance(value, str | int | float | bytes):
        text = repr(value)
        return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
    return f"of type {type(value).__name__}"
