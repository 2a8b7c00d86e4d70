"""Public functions and methods name their arguments, and those that are options are as ``greenadapt.config`` says."""

import inspect
from collections.abc import Callable, Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest

import greenadapt
from greenadapt.config import (
    CHOSEN_FOR_ENTITIES,
    CHOSEN_FOR_TRAINING,
    CHOSEN_FOR_VECTORS,
    AdapterConfig,
    AlignConfig,
    ExpandConfig,
    ReadingOptions,
    RunConfig,
    SamplingConfig,
    SessionOptions,
    TaskConfig,
    TextOptions,
    TrainConfig,
    W2VConfig,
)
from greenadapt.fields import Field, option_fields, without_ranges

OF_COMMANDS = {"max_time"}
"""Options of commands alone: they act on the whole process."""
TRAINED = (TaskConfig, TrainConfig, AdapterConfig, SamplingConfig, RunConfig, SessionOptions)
OPTIONS: dict[Callable[..., Any], tuple[tuple[type, ...], set[str], set[str]]] = {
    greenadapt.adapt: (
        (W2VConfig, AlignConfig, ExpandConfig, TextOptions, SessionOptions),
        OF_COMMANDS,
        {"corpus", "model", "preset", "progress"},
    ),
    greenadapt.finetune: (
        TRAINED,
        {"task", "download", "workers", "max_memory", *OF_COMMANDS},
        {
            *("model", "task", "train", "dev", "test", "unlabelled", "tasks", "memory", "memory_config"),
            *("preset", "seeds", "seed", "progress"),
        },
    ),
    greenadapt.load: ((ReadingOptions,), set(), {"model", "task"}),
    greenadapt.TaskModel.from_pretrained: ((ReadingOptions,), set(), {"model", "task"}),
    greenadapt.EncoderModel.from_pretrained: ((), set(), {"model"}),
}
"""Function → configurations whose options are its arguments, options that are not, and its other arguments."""


def annotation(field: Field) -> Any:
    """The type of an argument for a field: text for what a command line parses, a list or one item for a tuple."""
    kind = without_ranges(field.kind)
    kinds = get_args(kind) or (kind,)
    if get_origin(kind) is tuple:
        return str | PathLike[str] | Sequence[str | PathLike[str]] if field.option.is_path else str | Sequence[str]
    if Path in kinds:
        return str | PathLike[str] | None
    return Union[*kinds, str] if field.option.parse is not None else kind


def expected(field: Field, chosen: Collection[str]) -> tuple[Any, Any]:
    """The type and the default of an argument; the function chooses the settings ``chosen`` itself."""
    if field.name in chosen:
        return annotation(field) | None, None
    return annotation(field), field.default if field.option.default_text is None else field.option.default_text


@pytest.mark.parametrize("function", OPTIONS, ids=lambda function: function.__qualname__)
def test_arguments_have_the_names_types_and_defaults_of_the_options(function: Callable[..., Any]) -> None:
    configs, without, arguments = OPTIONS[function]
    parameters = inspect.signature(function).parameters
    fields = {field.parameter: field for config in reversed(configs) for field in option_fields(config).values()}
    for name in without:
        fields.pop(name, None)
    assert parameters.keys() == fields.keys() | arguments
    actual = {name: (without_ranges(parameters[name].annotation), parameters[name].default) for name in fields}
    chosen = {TaskConfig: CHOSEN_FOR_ENTITIES, TrainConfig: CHOSEN_FOR_TRAINING, W2VConfig: CHOSEN_FOR_VECTORS}
    names = {name for config in configs for name in chosen.get(config, ())}
    assert actual == {name: expected(field, names) for name, field in fields.items()}


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
