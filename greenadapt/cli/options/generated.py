"""Options that are generated: from configuration classes, and those that every command has."""

from collections.abc import Callable
from dataclasses import MISSING
from functools import partial, wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from greenadapt.cli.options.completion import complete_option
from greenadapt.config import Panel
from greenadapt.fields import Checked, Field, option_fields, without_ranges

_QUIET = "Print only results, warnings and errors."
_VERBOSE = "Also print what is read, which results are used and why a stage runs, on stderr."
_LOG_FORMAT = "Messages on stderr as text, or as one JSON object a line."
_CONFIG = "File (.toml) that sets options [default: $GREENADAPT_CONFIG, else no file]."
LogFormat = Literal["text", "json"]

FIELDS = "option_fields"
"""Attribute of a command's function: parameter → field."""


class Pick:
    """Which fields of a configuration a command takes, and defaults of this command."""

    def __init__(self, *only: str, without: tuple[str, ...] = (), **defaults: Any) -> None:
        self.only, self.without, self.defaults = only, without, defaults

    def fields(self, config: type) -> list[Field]:
        """The chosen fields."""
        known = option_fields(config)
        return [known[name] for name in self.only or known if name not in self.without]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with options in place of each parameter that is a configuration.

    The command gets the configuration, checked, or for ``Callable[..., Config]`` a function that makes it. Two
    configurations with an option of the same name share it.
    """
    shown: dict[str, Parameter] = {}
    own: list[str] = []
    made: dict[str, tuple[Any, bool, list[Field]]] = {}
    for name, parameter in signature(command).parameters.items():
        kind, is_called, pick = _configuration(parameter.annotation)
        if kind is None:
            shown[name] = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            own.append(name)
            continue
        picked = pick.fields(kind)
        made[name] = kind, is_called, picked
        for field in picked:
            shown.setdefault(field.parameter, _parameter(field, pick.defaults.get(field.name, field.default)))
    if not made:
        return command

    @wraps(command)
    def run(**values: Any) -> None:
        taken = {name: values[name] for name in own}
        for name, (kind, is_called, picked) in made.items():
            make = partial(kind, **_chosen(picked, values))
            taken[name] = make if is_called else make()
        command(**taken)

    run.__signature__ = signature(command).replace(parameters=[*shown.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    setattr(run, FIELDS, {field.parameter: field for _, _, picked in made.values() for field in picked})
    return run


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with the options that every command has, which ``start_output`` acts on.

    ``-q`` is left out where the command has another option of this name.
    """
    own = signature(command)
    taken = {name for parameter in own.parameters.values() for name in _names(parameter)}
    kinds: dict[str, tuple[Any, Any]] = {
        "quiet": (bool, _common("--quiet", *{"-q"} - taken, help=_QUIET)),
        "verbose": (bool, _common("--verbose", "-v", help=_VERBOSE)),
        "log_format": (LogFormat, _common("--log-format", help=_LOG_FORMAT)),
        "config": (Path | None, _common("--config", help=_CONFIG)),
    }
    defaults = {"quiet": False, "verbose": False, "log_format": "text", "config": None}

    @wraps(command)
    def run(**options: Any) -> None:
        own = {name: value for name, value in options.items() if name not in kinds}
        if options.get("dry_run") and "dry_run" in getattr(command, FIELDS, {}):  # of the session
            from greenadapt.cli.options.dry_run import steps_printed

            with steps_printed(as_json=options.get("as_json", False)):
                command(**own)
        else:
            command(**own)

    common = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=Annotated[kind, option])
        for name, (kind, option) in kinds.items()
    ]
    for parameter in own.parameters.values():
        for mark in get_args(parameter.annotation)[1:]:
            complete_option(mark)
    shown = sorted([*own.parameters.values(), *common], key=_is_advanced)  # so that their panel is the last
    run.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


def _common(*names: str, help: str) -> Any:  # noqa: A002  (typer's name)
    return typer.Option(*names, help=help, rich_help_panel=Panel.OUTPUT)


def names_of(*configs: type) -> dict[str, str]:
    """Parameters of all options of the configurations → the options."""
    return {field.parameter: field.option_name for config in configs for field in option_fields(config).values()}


def examples(*commands: str) -> str:
    """Commands of greenadapt, as they are shown below the help."""
    return "\n\n".join(["Examples:", *(f"- `greenadapt {command}`" for command in commands)])


def _configuration(annotation: Any) -> tuple[Any, bool, Pick]:
    """The configuration class that a parameter is annotated with, whether it wants a function that makes it, and how
    much of it.
    """
    pick = Pick()
    if get_origin(annotation) is Annotated:
        annotation, *marks = get_args(annotation)
        pick = next((mark for mark in marks if isinstance(mark, Pick)), pick)
    is_called = get_origin(annotation) is Callable
    if is_called:
        annotation = get_args(annotation)[-1]
    is_config = isinstance(annotation, type) and issubclass(annotation, Checked)
    return annotation if is_config else None, is_called, pick


def _parameter(field: Field, default: Any) -> Parameter:
    """The field as typer takes it."""
    option, kind = field.option, without_ranges(field.kind)
    unset = option.unset
    if option.parse is not None:
        kind, default = str, option.shown
    elif option.negated:
        default = not default
    elif get_origin(kind) is tuple:
        unset = unset or ", ".join(default)
        kind, default = list[Path] if option.is_path else list[str], None
    if default is None:
        kind = kind | None
    elif default is MISSING:
        default = Parameter.empty
    details = [("paper", option.paper), ("default", unset)]
    text = " ".join([option.help, *(f"[{name}: {value}]" for name, value in details if value)])
    shown = typer.Option(
        *field.names,
        help=text,
        show_default=default not in (None, Parameter.empty),
        rich_help_panel=option.panel,
    )
    return Parameter(field.parameter, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


def _chosen(picked: list[Field], values: dict[str, Any]) -> dict[str, Any]:
    """What the user chose, as values of fields; what an option leaves open stays at the field's default."""
    chosen = {}
    for field in picked:
        value = values[field.parameter]
        if field.option.negated:
            value = not value
        elif field.option.parse is not None:
            value = field.default if value is None else field.option.parse(value, field.option_name)
        elif isinstance(field.default, tuple):
            value = tuple(map(str, value or field.default))
        chosen[field.name] = value
    return chosen


def _is_advanced(parameter: Parameter) -> bool:
    marks = get_args(parameter.annotation)[1:]
    return any(getattr(mark, "rich_help_panel", None) == Panel.ADVANCED for mark in marks)


def _names(parameter: Parameter) -> list[str]:
    """The options that a parameter is given by."""
    return [name for info in get_args(parameter.annotation)[1:] for name in getattr(info, "param_decls", None) or ()]
