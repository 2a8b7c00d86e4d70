"""``greenadapt doctor``."""

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import FIELDS, Pick, examples
from greenadapt.cli.settings import CONFIG, Setting, commands_of, find_settings, options_of, unknown_variables
from greenadapt.config import SessionOptions
from greenadapt.errors import UsageError, counted

if TYPE_CHECKING:
    from greenadapt.stages.machine import Check


@app.command(epilog=examples("doctor", "doctor --cluster 10.0.0.5:6379", "doctor --json"))
def doctor(
    ctx: typer.Context, *, options: Annotated[SessionOptions, Pick("workspace", "cluster")], as_json: o.AsJson = False
) -> None:
    """Check this machine, and say what to do.

    Checks versions, GPU, cores, memory, disk, offline models, the hub, a Ray cluster and the settings in force. The
    exit code is 1 only if something fails that every command needs, or if a setting or the cluster is wrong.
    """
    from greenadapt.cli.output.console import hanging, print_json, print_lines, terminal_width, write_warning
    from greenadapt.cli.output.printing import print_cluster, print_settings
    from greenadapt.stages.machine import doctor as checks
    from greenadapt.storage.workspace import Workspace

    print_rows = {"node": print_cluster, "setting": print_settings}
    group: Any = ctx.find_root().command
    for name, near in unknown_variables(commands_of(group)):
        write_warning(f"{name} is not the variable of an option" + (f": did you mean {near}?" if near else ""))
    is_fit = True
    file = None if ctx.params[CONFIG] is None else str(ctx.params[CONFIG])
    for each in chain(checks(Workspace.find(options.workspace), options.cluster), _settings(group, file)):
        is_fit = is_fit and each.state != "problem"
        if as_json:
            for row in (each.as_dict(), *each.rows):
                print_json(row)
            continue
        said = ": ".join(filter(None, (each.check, each.found, each.advice)))
        print_lines(hanging(f"{each.state:<7}  ", said, terminal_width()))
        if each.rows:
            print_rows[each.rows[0]["kind"]](each.rows)
    if not is_fit:
        raise typer.Exit(1)


def _settings(group: Any, file: str | None) -> list["Check"]:
    """What is set in ``file`` and in the environment, and a check for each value that is wrong."""
    from greenadapt.stages.machine import Check

    rows: dict[str, dict[str, Any]] = {}  # by place: once, also if it is for many commands
    wrong: dict[str, str] = {}
    for key, command in commands_of(group).items():
        try:
            settings = find_settings(group, key, file)
        except UsageError as error:
            wrong[error.message] = error.hint
            continue
        for option, parameter in options_of(command).items():
            setting = settings.get(parameter.name)
            if setting is None:
                continue
            try:
                _check(command, parameter, setting)
            except UsageError as error:
                wrong[error.message] = error.hint
            rows[setting.place] = {
                "kind": "setting",
                "command": None if setting.is_for_all else key.replace("-", " "),
                "option": option,
                "value": setting.value,
                "source": setting.source,
                "place": setting.place.removeprefix("in "),
            }
    ordered = sorted(rows.values(), key=lambda row: ("", row["option"]) if row["command"] is None else ("command", ""))
    found = f"{counted(len(rows), 'option') if rows else 'none'} set in a file or in the environment"
    return [
        *(Check("settings", "problem", message, hint) for message, hint in wrong.items()),
        Check("settings", "ok", found, rows=ordered),
    ]


def _check(command: Any, parameter: Any, setting: Setting) -> None:
    """Raise ``UsageError`` with the place of a wrong value."""
    from pydantic import TypeAdapter, ValidationError

    from greenadapt.fields import allowed

    field = getattr(command.callback, FIELDS, {}).get(parameter.name)
    wrong = f"{setting.place} is {setting.value!r}"
    try:
        value = parameter.process_value(typer.Context(command), setting.value)
        if field is not None and field.option.parse is not None:
            field.option.parse(value, setting.place)
        elif field is not None:
            TypeAdapter(field.kind).validate_python(value)
    except typer.BadParameter as error:
        raise UsageError(f"{wrong}, must be {allowed(field.kind)}" if field else f"{wrong}: {error.message}") from None
    except ValidationError:
        assert field is not None
        raise UsageError(f"{wrong}, must be {allowed(field.kind)}") from None
