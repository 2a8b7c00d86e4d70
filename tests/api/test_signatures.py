"""Public functions and methods name and type their arguments."""

import inspect
from typing import Any

import pytest

import greenadapt


def public_calls() -> dict[str, Any]:
    """All that a program may call, by name."""
    calls: dict[str, Any] = {}
    for name in greenadapt.__all__:
        value = getattr(greenadapt, name)
        calls[name] = value
        if inspect.isclass(value):
            members = inspect.getmembers(value, callable)
            calls |= {f"{name}.{member}": call for member, call in members if not member.startswith("_")}
    return calls


@pytest.mark.parametrize("name", public_calls())
def test_every_argument_is_named_and_typed(name: str) -> None:
    for parameter in inspect.signature(public_calls()[name]).parameters.values():
        assert parameter.kind is not parameter.VAR_KEYWORD
        assert parameter.name == "self" or parameter.annotation not in (inspect.Parameter.empty, Any)
