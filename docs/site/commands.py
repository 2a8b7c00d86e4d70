"""The reference of commands, from the command line itself."""

import re
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer


def markdown() -> str:
    """Every command: what it does, and its options by panel with their default and what is allowed."""
    from greenadapt.cli import app

    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    parts = []
    for name in group.list_commands(context):
        command = group.commands[name]
        if hasattr(command, "commands"):
            parts += [_command(f"{name} {each}", below) for each, below in command.commands.items()]
        else:
            parts.append(_command(name, command))
    return "\n\n".join(parts)


def _command(name: str, command: Any) -> str:
    parts = [f"## greenadapt {name}", _plain(command.help or "")]
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    options = [each for each in command.params if each.opts[0].startswith("-") and not each.hidden]
    if arguments:
        rows = [f"| `{each.metavar or each.opts[0].upper()}` | {_plain(each.help or '')} |" for each in arguments]
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    panels = list(dict.fromkeys(_panel(each) for each in options))
    for panel, each in groupby(sorted(options, key=lambda option: panels.index(_panel(option))), key=_panel):
        title = f"**{panel}**\n\n" if len(panels) > 1 else ""
        rows = [_option(option, command) for option in each]
        parts.append("\n".join([f"{title}| option | meaning | default | allowed |", "|---|---|---|---|", *rows]))
    examples = re.findall(r"`(greenadapt [^`]+)`", command.epilog or "")
    if examples:
        parts.append("\n".join(["```", *examples, "```"]))
    return "\n\n".join(parts)


def _panel(option: Any) -> str:
    return str(option.rich_help_panel or "Options")


def _option(option: Any, command: Any) -> str:
    from greenadapt.cli.options import FIELDS

    names = " ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    text, default = option.help or "", ""
    marked = re.search(r" ?\[default: (.*?)\]", text)
    if marked:
        text, default = text.replace(marked[0], ""), marked[1]
    elif option.default is True:
        default = f"`{option.opts[0]}`"
    elif isinstance(option.default, str | int | float) and option.default is not False and option.show_default:
        default = f"`{option.default}`"
    field = getattr(command.callback, FIELDS, {}).get(option.name)
    kind = _allowed(field.kind if field else option.type_descriptor.annotation)
    return f"| {names} | {_plain(text)} | {_plain(default)} | {_plain(kind)} |"


_KINDS = {int: "a whole number", float: "a finite number", bool: "", str: "text", Path: "a path"}
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "under"}


def _allowed(kind: Any) -> str:
    """The values that a type with ranges allows, in words."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = [
            f"{word} {value}"
            for mark in arguments[1:]
            for name, word in _LIMITS.items()
            if (value := getattr(mark, name, None)) is not None
        ]
        return ", ".join([_allowed(arguments[0]), " and ".join(limits)])
    if origin is Literal:
        return f"one of {', '.join(arguments)}" if len(arguments) > 1 else str(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(_allowed(member) for member in arguments if member is not NoneType)
    return _allowed(arguments[0]) if origin in (tuple, list) else _KINDS[kind]


def _plain(text: str) -> str:
    """Text for a cell or a paragraph of Markdown."""
    return re.sub(r"(?<!\\)\|", r"\\|", text).replace("<", "&lt;").replace("*", r"\*")
