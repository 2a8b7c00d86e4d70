"""Functions for users of Python: their arguments are compared with their annotations before any work."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from functools import cache, wraps
from os import PathLike
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

from greenadapt.errors import UsageError
from greenadapt.fields import allowed, check_path

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LONGEST = 60
"""Characters of a value in a message."""


def checked_call(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function``, which raises ``UsageError`` for an argument that its annotation does not allow.

    numpy's scalars count as Python's. What an iterable yields is not looked at. pydantic is imported by the first call.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        parameters = _signature(function).parameters
        bound = _signature(function).bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind, annotation = parameters[name].kind, parameters[name].annotation
            if kind is inspect.Parameter.VAR_KEYWORD or annotation is inspect.Parameter.empty:
                continue
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(check_value(name, one, annotation) for one in value)
            else:
                bound.arguments[name] = check_value(name, value, annotation)
        return function(*bound.args, **bound.kwargs)

    return call


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
