"""``greenadapt doctor``."""

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenadapt.cli import app
from greenadapt.cli import options as o
from greenadapt.cli.options import FIELDS, Pick, examples, refusal
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
    from greenadapt.cli.output.console import hanging, print_json, print_lines, terminal_width, write_message
    from greenadapt.cli.output.printing import print_cluster, print_settings
    from greenadapt.stages.machine import doctor as checks
    from greenadapt.storage.workspace import Workspace

    print_rows = {"node": print_cluster, "setting": print_settings}
    group: Any = ctx.find_root().command
    for name, match in unknown_variables(commands_of(group)):
        hint = f": did you mean {match}?" if match else ""
        write_message("warning", f"{name} is not the variable of an option{hint}")
    is_fit = True
    file = None if ctx.params[CONFIG] is None else str(ctx.params[CONFIG])
    for result in chain(checks(Workspace.find(options.workspace), options.cluster), _settings(group, file)):
        is_fit = is_fit and result.state != "problem"
        if as_json:
            print_json(result.as_dict(), *result.rows)
            continue
        text = ": ".join(filter(None, (result.check, result.found, result.advice)))
        print_lines(hanging(f"{result.state:<7}  ", text, terminal_width()))
        if result.rows:
            print_rows[result.rows[0]["kind"]](result.rows)
    if not is_fit:
        raise typer.Exit(1)


def _settings(group: Any, file: str | None) -> list["Check"]:
    """The options set in ``file`` and in the environment, and a problem for each wrong value."""
    from greenadapt.stages.machine import Check

    rows: dict[str, dict[str, Any]] = {}  # by location: once, also if it is for many commands
    problems: dict[str, str] = {}
    for key, command in commands_of(group).items():
        try:
            settings = find_settings(group, key, file)
        except UsageError as error:
            problems[error.message] = error.hint
            continue
        for option, parameter in options_of(command).items():
            setting = settings.get(parameter.name)
            if setting is None:
                continue
            try:
                _check(command, parameter, setting)
            except UsageError as error:
                problems[error.message] = error.hint
            rows[setting.location] = {
                "kind": "setting",
                "command": None if setting.is_for_all else key.replace("-", " "),
                "option": option,
                "value": setting.value,
                "source": setting.source,
                "place": setting.location.removeprefix("in "),
            }
    ordered = sorted(rows.values(), key=lambda row: ("", row["option"]) if row["command"] is None else ("command", ""))
    summary = f"{counted(len(rows), 'option') if rows else 'none'} set in a file or in the environment"
    return [
        *(Check("settings", "problem", message, hint) for message, hint in problems.items()),
        Check("settings", "ok", summary, rows=ordered),
    ]


def _check(command: Any, parameter: Any, setting: Setting) -> None:
    """Raise ``UsageError`` with the location of a wrong value."""
    from pydantic import TypeAdapter, ValidationError

    field: Any = getattr(command.callback, FIELDS, {}).get(parameter.name)
    try:
        value = parameter.process_value(typer.Context(command), setting.value)
        if field is not None and field.option.parse is not None:
            field.option.parse(value, setting.location)
        elif field is not None:
            TypeAdapter(field.kind).validate_python(value)
    except (typer.BadParameter, ValidationError) as error:
        raise UsageError(refusal(f"{setting.location} is {setting.value!r}", field, error)) from None
