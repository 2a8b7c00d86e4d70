"""``greenadapt config``."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from greenadapt.cli import app, settings
from greenadapt.cli import options as o
from greenadapt.cli.options import FIELDS, examples
from greenadapt.cli.settings import (
    CONFIG,
    Setting,
    command_key,
    commands_of,
    find_settings,
    options_of,
    unknown_variables,
)
from greenadapt.errors import MissingError, UsageError

_WIDEST = 26  # characters of a default in words, so that the table fits 80 columns

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="Show all options of this command, also those that are not set.",
        autocompletion=settings.commands,
    ),
]


@app.command(epilog=examples("config", "config w2v", "config corpus prepare --json"))
def config(ctx: typer.Context, *, command: Words = None, as_json: o.AsJson = False) -> None:
    """Show which options are set in the file of --config or in the environment, and check each value.

    Other options have the values of the command line, which come first, or their defaults.
    """
    from greenadapt.cli.output.console import print_json, print_table, print_text, write_warning

    group: Any = ctx.find_root().command
    known = commands_of(group)
    if command and command_key(command) not in known:
        raise MissingError(f"no command is called {' '.join(command)}", "greenadapt --help lists them")
    file = ctx.params[CONFIG]
    chosen = [command_key(command)] if command else [*known]
    rows = [row for key in chosen for row in _rows(known[key], key, str(file) if file else None, group)]
    if not command:  # each once, also if it is for many commands
        rows = list({row["place"]: row for row in rows if row["source"] != "default"}.values())
        rows.sort(key=lambda row: row["command"] is not None)
    for name, near in unknown_variables(known):
        write_warning(f"{name} is not the variable of an option" + (f": did you mean {near}?" if near else ""))
    if as_json:
        for row in rows:
            print_json({name: value for name, value in row.items() if name != "shown"})
    elif command:
        cells = [[row["option"], row["shown"], row["place"] or "default"] for row in rows]
        print_table("", ["option", "value", "from"], cells, numbers=False)
    elif rows:
        cells = [[row["command"] or "all", row["option"], row["shown"], row["place"]] for row in rows]
        print_table("", ["command", "option", "value", "from"], cells, numbers=False)
    else:
        print_text(["no option is set in a file or in the environment; greenadapt config COMMAND shows its defaults"])


def _rows(command: Any, key: str, file: str | None, group: Any) -> Iterator[dict[str, Any]]:
    """What each option of a command is; raises ``UsageError`` with the place of a wrong value."""
    settings = find_settings(group, key, file)
    for option, parameter in options_of(command).items():
        field = getattr(command.callback, FIELDS, {}).get(parameter.name)
        setting = settings.get(parameter.name)
        if setting is not None:
            _check(command, parameter, field, setting)
        value = parameter.default if setting is None else setting.value
        unset = field.option.unset if field is not None and value is None else ""
        yield {
            "command": None if setting is not None and setting.is_for_all else key.replace("-", " "),
            "option": option,
            "value": value if isinstance(value, str | bool | int | float | list) else None,
            "source": "default" if setting is None else setting.source,
            "place": None if setting is None else setting.location.removeprefix("in "),
            "shown": (unset if len(unset) <= _WIDEST else f"{unset[: _WIDEST - 1]}…") or _shown(value),
        }


def _shown(value: Any) -> str:
    """As in a file."""
    if isinstance(value, list):
        return ", ".join(value)
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _check(command: Any, parameter: Any, field: Any, setting: Setting) -> None:
    from pydantic import TypeAdapter, ValidationError

    from greenadapt.fields import allowed

    wrong = f"{setting.location} is {setting.value!r}"
    try:
        value = parameter.process_value(typer.Context(command), setting.value)
        if field is not None and field.option.parse is not None:
            field.option.parse(value, setting.location)
        elif field is not None:
            TypeAdapter(field.kind).validate_python(value)
    except typer.BadParameter as error:
        raise UsageError(f"{wrong}, must be {allowed(field.kind)}" if field else f"{wrong}: {error.message}") from None
    except ValidationError:
        raise UsageError(f"{wrong}, must be {allowed(field.kind)}") from None
