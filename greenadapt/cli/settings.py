"""Where the values of options come from: the command line, the environment, a file (``--config``), a preset."""

import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.store.files import read_toml, shorten_path

CONFIG, PRESET = "config", "preset"
"""The options for the file of settings, which cannot be set in the file, and for the values of a paper."""
_SETTINGS = "greenadapt.settings"
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_NOT_RECORDED = {"workspace", "out", "as_json", "quiet", "verbose", "config", "max_time"}
_RUNNING: ContextVar[Any] = ContextVar("running")
"""The context of the command that runs."""


@dataclass(frozen=True)
class Setting:
    """The value of an option from a file or the environment."""

    value: str | list[str] | bool
    """The value as on the command line; a list if the option can be repeated."""
    location: str
    """Where it is set, in messages: ``GREENADAPT_W2V_EPOCHS``, or ``in FILE, [w2v] epochs``."""


def use_settings(ctx: Any, values: Mapping[str, Any], paper: Mapping[str, str]) -> None:
    """Make settings, and where nothing else is set the ``paper``'s values, the defaults of the command of ``ctx``.

    ``values`` are those on the command line by parameter.
    """
    settings = find_settings(ctx.find_root().command, command_key(ctx), values.get(CONFIG))
    preset = values.get(PRESET) or (settings[PRESET].value if PRESET in settings else None)
    ctx.meta[_SETTINGS] = settings
    ctx.default_map = {
        **(paper if preset == "paper" else {}),
        **{name: setting.value for name, setting in settings.items()},
    }
    _RUNNING.set(ctx)


def find_settings(group: Any, key: str, file: str | None) -> dict[str, Setting]:
    """The settings of the command ``key`` by parameter, from the environment or else from ``file``.

    ``file`` is the value of ``--config``; ``None``: that of its environment variable, if any.
    """
    commands = {name: options_of(command) for name, command in commands_of(group).items()}
    file = file or os.environ.get(variable(key, CONFIG)) or os.environ.get(variable("", CONFIG))
    settings = _file_settings(Path(file), commands, key) if file else {}
    for option, parameter in commands[key].items():
        for scope in ("", key):
            name = variable(scope, option)
            if text := os.environ.get(name):
                settings[parameter.name] = Setting(_from_environment(parameter, text, name), name)
    return settings


def _file_settings(path: Path, commands: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, Setting]:
    """The settings of the command ``key`` from a TOML file: keys for all commands, and a table per command, which
    overrides them.

    ``commands`` have the options by key of the command. Raises ``MissingError`` if there is no such file,
    ``InputError`` if it is not TOML, or has an unknown table or key.
    """
    try:
        content = read_toml(path, "write keys such as workers = 2, or [w2v]")
    except FileNotFoundError:
        raise MissingError(f"no file {path}", "give an existing file with --config") from None
    tables = {"": {name: value for name, value in content.items() if not isinstance(value, dict)}}
    tables |= {name: table for name, table in content.items() if isinstance(table, dict)}
    settings = {}
    for command, table in tables.items():
        if command:
            _require_known(command, commands, f"{path} has the unknown table")
        known = commands[command] if command else set().union(*commands.values())
        for name, value in table.items():
            option = name.replace("_", "-")
            _require_known(option, known, f"{path}{f', [{command}]' if command else ''} has the unknown key")
            if command in ("", key) and (parameter := commands[key].get(option)):
                location = f"in {path}, {f'[{command}] ' if command else ''}{name}"
                settings[parameter.name] = Setting(_from_toml(parameter, value, location), location)
    return settings


def _require_known(name: str, names: Iterable[str], problem: str) -> None:
    from difflib import get_close_matches

    if name not in names:
        matches = get_close_matches(name, sorted(names), n=3)
        raise InputError(f"{problem} {name}", f"did you mean {', '.join(matches)}?" if matches else "leave it out")


def _from_environment(parameter: Any, text: str, name: str) -> str | list[str] | bool:
    if parameter.is_flag:
        if text.lower() not in (*_YES, *_NO):
            raise UsageError(f"{name} is {text!r}, must be true or false")
        return text.lower() in _YES
    try:
        return shlex.split(text) if parameter.multiple else text
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}: {error}", "quote values as in a shell") from None


def _from_toml(parameter: Any, value: Any, location: str) -> str | list[str] | bool:
    values = value if isinstance(value, list) and parameter.multiple else [value]
    kinds, expected = (bool, "true or false") if parameter.is_flag else (str | int | float, "text or a number")
    if any(not isinstance(item, kinds) or isinstance(item, bool) != parameter.is_flag or item == "" for item in values):
        raise UsageError(f"{location} is {value!r}, must be {expected}")
    if isinstance(value, bool):
        return value
    texts = list(map(str, values))
    return texts if parameter.multiple else texts[0]


def options_of(command: Any) -> dict[str, Any]:
    """The options of a command that can be set, by long name without its dashes."""
    options = {}
    for parameter in command.params:
        long = [name for name in parameter.opts if name.startswith("--")]
        if parameter.param_type_name == "option" and long and parameter.name not in (CONFIG, "help"):
            options[long[0].removeprefix("--")] = parameter
    return options


def variable(key: str, option: str) -> str:
    """The environment variable of an option, for the command ``key`` or, if that is empty, for all commands."""
    return "_".join(["GREENADAPT", *([key] if key else []), option]).upper().replace("-", "_")


def command_key(ctx: Any) -> str:
    """The name of the command of ``ctx`` in files and variables, such as ``corpus-prepare``."""
    words: list[str] = []
    while ctx.parent is not None:
        words.insert(0, ctx.info_name)
        ctx = ctx.parent
    return "-".join(words)


def commands_of(group: Any, prefix: str = "") -> dict[str, Any]:
    """All commands of a group and of the groups in it, by key."""
    commands: dict[str, Any] = {}
    for name, command in group.commands.items():
        key = f"{prefix}{name}"
        commands |= commands_of(command, f"{key}-") if hasattr(command, "commands") else {key: command}
    return commands


def source_of(ctx: Any, name: str) -> str:
    """Where the value of a parameter comes from: ``COMMANDLINE``, ``DEFAULT``, or ``DEFAULT_MAP`` of settings."""
    return str(getattr(ctx.get_parameter_source(name), "name", "DEFAULT"))


def used_settings(ctx: Any) -> dict[str, Setting]:
    """The settings that the command line does not override, and that have an effect, by parameter."""
    settings: dict[str, Setting] = ctx.meta.get(_SETTINGS, {})
    return {name: setting for name, setting in settings.items() if source_of(ctx, name) == "DEFAULT_MAP"}


def ignore_settings(ctx: Any, *names: str) -> list[Any]:
    """Reset parameters to their defaults unless they are on the command line; returns their values."""
    for parameter in ctx.command.params:
        if parameter.name in names and source_of(ctx, parameter.name) == "DEFAULT_MAP":
            ctx.params[parameter.name] = parameter.default
            ctx.set_parameter_source(parameter.name, type(ctx.get_parameter_source(parameter.name)).DEFAULT)
    return [ctx.params[name] for name in names]


def with_location(error: UsageError, ctx: Any) -> UsageError:
    """``error`` with the location instead of the option that it begins with, if a file or the environment sets that."""
    option, settings = error.message.partition(" ")[0], used_settings(ctx)
    for parameter in ctx.command.params:
        if option in (*parameter.opts, *parameter.secondary_opts) and parameter.name in settings:
            return UsageError(settings[parameter.name].location + error.message.removeprefix(option), error.hint)
    return error


def command_line() -> str | None:
    """The running command, as recorded in results; ``None`` outside of commands.

    It includes values from a file or the environment, so that it makes the same result elsewhere.
    """
    ctx = _RUNNING.get(None)
    if ctx is None:
        return None
    arguments, options = [], []
    for parameter in ctx.command.params:
        name, value = parameter.name, ctx.params.get(parameter.name)
        is_set = source_of(ctx, name) == "COMMANDLINE" or name in used_settings(ctx)
        if value is None or not is_set or name in _NOT_RECORDED:
            continue
        words = [_shorten(str(item)) for item in (value if isinstance(value, list | tuple) else [value])]
        if parameter.param_type_name == "argument":
            arguments += words
        elif parameter.is_flag:
            options += [_long(parameter.opts if value else parameter.secondary_opts)]
        else:
            options += [word for item in words for word in (_long(parameter.opts), item)]
    out = ["--out", "FOLDER"] if ctx.params.get("out") is not None else []
    return shlex.join(["greenadapt", *command_key(ctx).split("-"), *arguments, *filter(None, options), *out])


def _shorten(value: str) -> str:
    with suppress(OSError, RuntimeError):  # a name that is too long, or the home of an unknown user
        value = shorten_path(value)
    return value.encode("utf-8", "replace").decode("utf-8")  # JSON has no surrogates


def _long(names: list[str]) -> str:
    return next((name for name in names if name.startswith("--")), "")
