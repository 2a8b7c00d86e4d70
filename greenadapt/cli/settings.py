"""Options set in a file (``--config``) or in environment variables."""

import os
import re
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
_OPTION = re.compile(r"--[a-z][a-z-]*")


@dataclass(frozen=True)
class Setting:
    """The value of an option from a file or the environment."""

    value: str | list[str] | bool
    """The value as on the command line; a list if the option can be repeated."""
    location: str
    """Where it is set, in messages: ``GREENADAPT_W2V_EPOCHS``, or ``in FILE, [w2v] epochs``."""
    source: str
    """``environment`` or ``file``."""
    is_for_all: bool
    """Whether it is set for all commands; a command where it has no effect ignores it."""


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
    for is_for_all, table, prefix in ((True, shared, ""), (False, tables.get(key, {}), f"[{key}] ")):
        for name, value in table.items():
            if parameter := options[key].get(_key(name)):
                location = f"in {path}, {prefix}{name}"
                settings[_key(name)] = Setting(_from_toml(parameter, value, location), location, "file", is_for_all)
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
                settings[option] = Setting(_from_environment(parameter, text, name), name, "environment", not scope)
    return {options[option].name: setting for option, setting in settings.items()}


def keep_settings(ctx: Any, settings: dict[str, Setting]) -> None:
    """Make ``settings`` the defaults of the command of ``ctx``."""
    ctx.meta[_META] = settings
    ctx.default_map = {name: setting.value for name, setting in settings.items()}


def all_settings(ctx: Any) -> dict[str, Setting]:
    """The settings of ``keep_settings``, including those that the command line overrides."""
    return dict(ctx.meta.get(_META, {}))


def used_settings(ctx: Any) -> dict[str, Setting]:
    """The settings of ``ctx`` that the command line does not override, by parameter."""
    sources = {name: getattr(ctx.get_parameter_source(name), "name", None) for name in all_settings(ctx)}
    return {name: setting for name, setting in all_settings(ctx).items() if sources[name] == "DEFAULT_MAP"}


def with_locations(error: UsageError, ctx: Any) -> UsageError:
    """``error`` with the locations of the options in its message that are set in a file or the environment."""
    names = {
        option: parameter.name
        for parameter in ctx.command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    used = used_settings(ctx)
    mentioned = [option for option in dict.fromkeys(_OPTION.findall(error.message)) if names.get(option) in used]
    message = error.message
    if mentioned and message.startswith(mentioned[0]):
        first = mentioned.pop(0)
        message = used[names[first]].location + message.removeprefix(first)
    if mentioned:
        message += f" ({'; '.join(f'{option}: {used[names[option]].location}' for option in mentioned)})"
    return UsageError(message, error.hint)


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
    if parameter.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{location} is {_format_value(value)}, must be true or false")
        return value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in values):
        raise UsageError(f"{location} is {_format_value(value)}, must be text or a number")
    if isinstance(value, list) and not parameter.multiple:
        raise UsageError(f"{location} has {len(value)} values, takes one", "write it as on the command line")
    texts = [str(item) for item in values]
    if not all(texts):
        raise UsageError(f"{location} is empty", "give it a value, or leave it out")
    return texts if parameter.multiple else texts[0]


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
