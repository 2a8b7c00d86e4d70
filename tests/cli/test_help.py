"""What --help shows: commands in panels, the main options of a command, and with --help-all every option."""

import re
from typing import Any

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.cli.settings import commands_of
from tests.support.pages import GROUP

PANELS = {
    "Adapt a model": ["corpus", "w2v", "align", "expand", "adapt", "neighbours", "assess", "export"],
    "Train": ["pretrain", "finetune", "tasks", "evaluate"],
    "Use": ["predict", "qa", "compile", "index", "search", "serve"],
    "Look after results": ["report", "cost", "status", "clean", "doctor", "push", "demo"],
}


LEAVING = {"interpolate", "params", "cluster", "config", "reproduce"}
COMMANDS = {tuple(key.split("-")): command for key, command in commands_of(GROUP).items() if key not in LEAVING}
"""Words → command."""
MAIN_OPTIONS = {"--model", "--corpus", "--out", "--task", "--dry-run", "--force", "--json"}


def printed(*words: str) -> str:
    """What the command line prints on a terminal of 80 columns."""
    result = CliRunner().invoke(app, [*words], env={"COLUMNS": "80"}, prog_name="greenadapt")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def panels(text: str) -> dict[str, list[str]]:
    """Title of each panel → its lines."""
    found = re.findall(r"╭─ (.*?) ─+╮\n(.*?)╰─", text, re.DOTALL)
    return {title: [line[2:-1] for line in lines.splitlines()] for title, lines in found}


def test_commands_are_in_panels_in_the_order_of_the_work() -> None:
    shown = {title: [line.split()[0] for line in lines] for title, lines in panels(printed("--help")).items()}
    assert [name for name in shown if name in PANELS] == [*PANELS]
    assert {title: shown[title] for title in PANELS} == PANELS
    assert {*GROUP.commands} - LEAVING == {name for names in PANELS.values() for name in names}
    assert "bool" not in printed("--help")


@pytest.mark.parametrize("name", [name for names in PANELS.values() for name in names])
def test_a_command_is_described_in_at_most_nine_words(name: str) -> None:
    for command in (GROUP.commands[name], *getattr(GROUP.commands[name], "commands", {}).values()):
        assert 1 < len(command.help.partition("\n\n")[0].split()) <= 9, command.help


def options_in(text: str) -> set[str]:
    """The options that have a line of their own in a help."""
    lines = [line for lines in panels(text).values() for line in lines]
    return {name for line in lines for name in re.findall(r"^(?:[* ]  )?(--[a-z][a-z-]*)", line)}


def options_of(command: Any) -> set[str]:
    """The first name of each option that a command has, beside those for its help."""
    return {each.opts[0] for each in command.params if each.param_type_name == "option"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_the_main_options_and_names_the_rest(words: tuple[str, ...]) -> None:
    shown, known = options_in(text := printed(*words, "--help")), options_of(COMMANDS[words])
    needed = {each.opts[0] for each in COMMANDS[words].params if each.required and each.opts[0] in known}
    assert {"--help", *(MAIN_OPTIONS & known), *needed} <= shown <= {"--help", *known}
    assert len(shown) <= (25 if words == ("finetune",) else 15)
    assert len(panels(text).keys() - {"Arguments"}) == 1 or words == ("finetune",)
    assert text.rstrip().splitlines()[-1].strip() == f"More options: greenadapt {' '.join(words)} --help-all"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_full_help_shows_every_option(words: tuple[str, ...]) -> None:
    text = printed(*words, "--help-all")
    assert options_in(text) == {"--help", "--help-all", *options_of(COMMANDS[words])}
    assert "More options" not in text
    assert "Output and settings" in panels(text)


@pytest.mark.parametrize("words", [(), ("corpus",)], ids=["greenadapt", "corpus"])
def test_a_group_has_no_more_options_than_help_shows(words: tuple[str, ...]) -> None:
    text, full = printed(*words, "--help"), printed(*words, "--help-all")
    assert "More options" not in text
    assert options_in(full) == options_in(text) | {"--help-all"}
