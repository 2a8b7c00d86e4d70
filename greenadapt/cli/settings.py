"""Options that are set in a file (``--config``) or in environment variables, and what the shell completes."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from greenadapt.config import MINILM, MPNET
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.fields import by_option
from greenadapt.storage.files import expanded, own_folder

if TYPE_CHECKING:
    from greenadapt.storage.workspace import Workspace


CONFIG = "config"
"""The option that names the file; it cannot be in the file."""
_META = "greenadapt.settings"
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_OPTION = re.compile(r"--[a-z][a-z-]*")


@dataclass(frozen=True)
class Setting:
    """The value of an option that is set, but not on the command line."""

    value: str | list[str] | bool
    """As it would be on the command line; a list if the option can be repeated."""
    place: str
    """Where it is set, as messages begin: ``GREENADAPT_W2V_EPOCHS``, or ``in FILE, [w2v] epochs``."""
    source: str
    """``environment`` or ``file``."""
    is_for_all: bool
    """Whether it is set for every command, so that one without a use for it ignores it."""


class SettingsFile:
    """A TOML file: keys for all commands, and a table for each command. Keys are options without their dashes."""

    def __init__(self, path: Path, commands: Mapping[str, Any]) -> None:
        """Read it; ``commands`` by ``command_key``.

        Raises ``MissingError`` if there is no such file, ``InputError`` for what is not TOML and for a table, a key or
        a kind of value that no command has, or that is there twice, with - and with _.
        """
        from greenadapt.storage.files import read_toml

        self.path = path
        try:
            content = read_toml(path, "write keys such as workers = 2, or [w2v]", may_be_pipe=True)
        except FileNotFoundError:
            raise MissingError(f"no file {path}", "give an existing file with --config") from None
        known = {key: options_of(command) for key, command in commands.items()}
        for key, value in content.items():
            if isinstance(value, dict):
                self._check(key, known, "table", "", "")
                for name in value:
                    self._check(_key(name), known[key], "key", f", [{key}]", f"greenadapt {key.replace('-', ' ')}")
            else:
                self._check(_key(key), {name for one in known.values() for name in one}, "key", "", "any command")
        self._for_all = {name: value for name, value in content.items() if not isinstance(value, dict)}
        self._tables = {name: value for name, value in content.items() if isinstance(value, dict)}
        by_option(self._for_all, str(path))
        for name, table in self._tables.items():
            by_option(table, f"{path}, [{name}]")

    def settings(self, key: str, options: Mapping[str, Any]) -> Iterator[tuple[str, Setting]]:
        """What the file sets of ``options``, those of the command ``key``; its own table comes last."""
        for is_for_all, table, where in ((True, self._for_all, ""), (False, self._tables.get(key, {}), f"[{key}] ")):
            for name, value in table.items():
                if _key(name) in options:
                    place = f"in {self.path}, {where}{name}"
                    taken = _taken(options[_key(name)], value, place)
                    yield _key(name), Setting(taken, place, "file", is_for_all)

    def _check(self, name: str, known: Any, kind: str, where: str, what: str) -> None:
        if name in known:
            return
        from difflib import get_close_matches

        near = get_close_matches(name, sorted(known), n=3)
        about = f"{what} has no option --{name}" if what else "no command has this name"
        hint = f"did you mean {', '.join(near)}?" if near else f"leave it out ({about})"
        raise InputError(f"{self.path}{where} has the unknown {kind} {name}", hint)


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
    found: dict[str, Any] = {}
    for name, command in group.commands.items():
        own = (*words, name)
        found |= commands_of(command, own) if hasattr(command, "commands") else {command_key(own): command}
    return found


def find_settings(group: Any, key: str, file: str | None) -> dict[str, Setting]:
    """What is set for the command ``key``, by parameter: in the environment, else in ``file``.

    ``file`` is the value of ``--config``; ``None`` takes that of its environment variable, if any.
    """
    commands = commands_of(group)
    options = options_of(commands[key])
    file = file or os.environ.get(variable(key, CONFIG)) or os.environ.get(variable("", CONFIG))
    found = dict(SettingsFile(Path(file), commands).settings(key, options)) if file else {}
    for option, parameter in options.items():
        for own in ("", key):
            name = variable(own, option)
            if text := os.environ.get(name):
                found[option] = Setting(_from_environment(parameter, text, name), name, "environment", not own)
    return {options[option].name: setting for option, setting in found.items()}


def keep_settings(ctx: Any, settings: dict[str, Setting]) -> None:
    """Let the command of ``ctx`` take the settings that are not on its command line."""
    ctx.meta[_META] = settings
    ctx.default_map = {name: setting.value for name, setting in settings.items()}


def unknown_variables(commands: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Variables that begin as ours but belong to no option, with the nearest name of one, if any."""
    from difflib import get_close_matches

    from greenadapt.cost import COUNTRY
    from greenadapt.server.guard import TOKEN
    from greenadapt.storage.workspace import HOME

    known = {HOME, COUNTRY, TOKEN}
    for key, command in commands.items():
        known |= {variable(own, option) for option in (*options_of(command), CONFIG) for own in ("", key)}
    for name in sorted(os.environ):
        if name.startswith("GREENADAPT_") and name not in known:
            yield name, next(iter(get_close_matches(name, sorted(known), n=1)), "")


def all_settings(ctx: Any) -> dict[str, Setting]:
    """What ``keep_settings`` kept, also if the command line overrides it."""
    return dict(ctx.meta.get(_META, {}))


def used_settings(ctx: Any) -> dict[str, Setting]:
    """The settings of ``ctx`` that the command line does not override, by parameter."""
    sources = {name: getattr(ctx.get_parameter_source(name), "name", None) for name in all_settings(ctx)}
    return {name: each for name, each in all_settings(ctx).items() if sources[name] == "DEFAULT_MAP"}


def with_places(error: UsageError, ctx: Any) -> UsageError:
    """``error`` with the places of the options that it is about, as far as they are not on the command line."""
    names = {option: each.name for each in ctx.command.params for option in (*each.opts, *each.secondary_opts)}
    used = used_settings(ctx)
    about = [option for option in dict.fromkeys(_OPTION.findall(error.message)) if names.get(option) in used]
    message = error.message
    if about and message.startswith(about[0]):
        first = about.pop(0)
        message = used[names[first]].place + message.removeprefix(first)
    if about:
        message += f" ({'; '.join(f'{option}: {used[names[option]].place}' for option in about)})"
    return UsageError(message, error.hint)


def _key(name: str) -> str:
    return name.replace("_", "-")


def _from_environment(parameter: Any, text: str, name: str) -> str | list[str] | bool:
    """Text as a value of the parameter."""
    if parameter.is_flag:
        if text.lower() not in (*_YES, *_NO):
            raise UsageError(f"{name} is {text!r}, must be true or false")
        return text.lower() in _YES
    try:
        return shlex.split(text) if parameter.multiple else text
    except ValueError as error:
        raise UsageError(f"{name} is {text!r}: {error}", "quote values as in a shell") from None


def _taken(parameter: Any, value: Any, place: str) -> str | list[str] | bool:
    """A value of TOML as a value of the parameter."""
    if isinstance(value, bool) or parameter.is_flag:
        if not (isinstance(value, bool) and parameter.is_flag):
            wanted = "true or false" if parameter.is_flag else "text or a number"
            raise UsageError(f"{place} is {_shown(value)}, must be {wanted}")
        return value
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in values):
        raise UsageError(f"{place} is {_shown(value)}, must be text or a number")
    if isinstance(value, list) and not parameter.multiple:
        raise UsageError(f"{place} has {len(value)} values, takes one", "write it as on the command line")
    if not all(str(each) for each in values):
        raise UsageError(f"{place} is empty", "give it a value, or leave it out")
    texts = [str(each) for each in values]
    return texts if parameter.multiple else texts[0]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


_MOST = 200  # folders that are offered
Completer = Callable[[typer.Context, str], list[str]]


def _silent(find: Callable[[typer.Context, str], Iterable[str]]) -> Completer:
    @wraps(find)
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in find(ctx, incomplete) if name.startswith(incomplete)})
        except Exception:  # a traceback would end up in the command that is being typed
            return []

    return complete


@_silent
def corpora(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Named corpora, and those in the workspace."""
    named = [path.stem for path in own_folder("corpora").glob("*.toml")]
    workspace = _workspace(ctx)
    return [*named, *(name for name in workspace.corpora() if workspace.models(name))]


@_silent
def models(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Models in packages, and folders of models and results below the folder that is being typed."""
    typed = incomplete[: incomplete.rfind("/") + 1]
    parent = expanded(typed)
    found = []
    for depth in ("*", "*/*"):
        for file in ("config.json", "manifest.json"):
            found += [f"{typed}{path.parent.relative_to(parent)}" for path in parent.glob(f"{depth}/{file}")]
    return [MINILM, MPNET, *(name for name in found[:_MOST] if not name.removeprefix(typed).startswith("."))]


@_silent
def variants(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Names of variants in the workspace, of the corpus that is given or of all."""
    workspace = _workspace(ctx)
    given = ctx.params.get("corpus")
    for corpus in [given] if given in workspace.corpora() else workspace.corpora():
        for model in workspace.models(corpus):
            yield from (name.split("@")[1] for name in workspace.stages(corpus, model) if "@" in name)


_OF_OPTIONS: dict[str, Completer] = {
    "--corpus": corpora,
    "--variant": variants,
    **dict.fromkeys(("--model", "--base", "--compare", "--reference", "--memory"), models),
}


def complete_option(option: Any) -> None:
    """Give a typer option that is named as one above what completes it."""
    # In an annotation, typer keeps the first name as the default.
    for name in (getattr(option, "default", None), *(getattr(option, "param_decls", None) or ())):
        if isinstance(name, str) and name in _OF_OPTIONS:
            option.autocompletion = _OF_OPTIONS[name]


def read_for_completion(command: Any, ctx: Any, args: list[str]) -> tuple[dict[str, Any], list[str], list[Any]]:
    """The options and arguments as text, since checking their types would take as long as all the rest."""
    parser = command.make_parser(ctx)
    ctx._opt_prefixes.update(parser._opt_prefixes)
    found: tuple[dict[str, Any], list[str], list[Any]] = parser.parse_args(args=list(args))
    return found


def _workspace(ctx: typer.Context) -> "Workspace":
    from greenadapt.storage.workspace import Workspace

    given = ctx.params.get("workspace")
    return Workspace.find(Path(given) if given else None)
