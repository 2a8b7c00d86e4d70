"""Options set in a file (``--config``) or in environment variables."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.store.files import read_toml

CONFIG = "config"
"""The option for the file of settings, which cannot be set in the file."""
_META = "greenadapt.settings"
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Setting:
    """The value of an option from a file or the environment."""

    value: str | list[str] | bool
    """The value as on the command line; a list if the option can be repeated."""
    location: str
    """Where it is set, in messages: ``GREENADAPT_W2V_EPOCHS``, or ``in FILE, [w2v] epochs``."""


def _file_settings(path: Path, commands: Mapping[str, Any], key: str) -> dict[str, Setting]:
    """The settings of the command ``key`` by option, from a TOML file of options without their dashes.

    The file has keys for all commands, and a table per command, which overrides them. ``commands`` are by
    ``command_key``. Raises ``MissingError`` if there is no such file, ``InputError`` if it is not TOML, or has an
    unknown table or key.
    """
    try:
        content = read_toml(path, "write keys such as workers = 2, or [w2v]")
    except FileNotFoundError:
        raise MissingError(f"no file {path}", "give an existing file with --config") from None
    options = {name: options_of(command) for name, command in commands.items()}
    shared = {name: value for name, value in content.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    for name in shared:
        _require_known(_key(name), set().union(*options.values()), "key", str(path), "no command has the option")
    for command, table in tables.items():
        _require_known(command, options, "table", str(path), "no command has this name")
        for name in table:
            reason = f"greenadapt {command.replace('-', ' ')} has no option"
            _require_known(_key(name), options[command], "key", f"{path}, [{command}]", reason)
    settings = {}
    for table, prefix in ((shared, ""), (tables.get(key, {}), f"[{key}] ")):
        for name, value in table.items():
            if parameter := options[key].get(_key(name)):
                location = f"in {path}, {prefix}{name}"
                settings[_key(name)] = Setting(_from_toml(parameter, value, location), location)
    return settings


def _require_known(name: str, names: Iterable[str], kind: str, location: str, reason: str) -> None:
    """Raise ``InputError`` unless ``name`` is among the ``names`` of tables or keys."""
    from difflib import get_close_matches

    if name in names:
        return
    matches = get_close_matches(name, sorted(names), n=3)
    reason = f"{reason} --{name}" if kind == "key" else reason
    hint = f"did you mean {', '.join(matches)}?" if matches else f"leave it out ({reason})"
    raise InputError(f"{location} has the unknown {kind} {name}", hint)


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


def command_key(words: Sequence[str]) -> str:
    """The name of a command in files and variables: ``corpus prepare`` → ``corpus-prepare``."""
    return "-".join(words)


def commands_of(group: Any, words: tuple[str, ...] = ()) -> dict[str, Any]:
    """All commands of a group and of the groups in it, by key."""
    commands: dict[str, Any] = {}
    for name, command in group.commands.items():
        path = (*words, name)
        commands |= commands_of(command, path) if hasattr(command, "commands") else {command_key(path): command}
    return commands


def find_settings(group: Any, key: str, file: str | None) -> dict[str, Setting]:
    """The settings of the command ``key`` by parameter, from the environment or else from ``file``.

    ``file`` is the value of ``--config``; ``None``: that of its environment variable, if any.
    """
    commands = commands_of(group)
    options = options_of(commands[key])
    file = file or os.environ.get(variable(key, CONFIG)) or os.environ.get(variable("", CONFIG))
    settings = _file_settings(Path(file), commands, key) if file else {}
    for option, parameter in options.items():
        for scope in ("", key):
            name = variable(scope, option)
            if text := os.environ.get(name):
                settings[option] = Setting(_from_environment(parameter, text, name), name)
    return {options[option].name: setting for option, setting in settings.items()}


def keep_settings(ctx: Any, settings: dict[str, Setting], preset: Mapping[str, str]) -> None:
    """Make ``settings``, and what only ``preset`` sets, the defaults of the command of ``ctx``."""
    ctx.meta[_META] = settings
    ctx.default_map = {**preset, **{name: setting.value for name, setting in settings.items()}}


def used_settings(ctx: Any) -> dict[str, Setting]:
    """The settings of ``keep_settings`` that the command line does not override, by parameter."""
    settings: dict[str, Setting] = ctx.meta.get(_META, {})
    sources = {name: getattr(ctx.get_parameter_source(name), "name", None) for name in settings}
    return {name: setting for name, setting in settings.items() if sources[name] != "COMMANDLINE"}


def with_location(error: UsageError, ctx: Any) -> UsageError:
    """``error`` with the location instead of the option that it begins with, if a file or the environment sets that."""
    option, settings = error.message.partition(" ")[0], used_settings(ctx)
    for parameter in ctx.command.params:
        if option in (*parameter.opts, *parameter.secondary_opts) and parameter.name in settings:
            return UsageError(settings[parameter.name].location + error.message.removeprefix(option), error.hint)
    return error


def _key(name: str) -> str:
    return name.replace("_", "-")


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
