"""What --help shows: commands in panels, and every option of a command."""

import re
from typing import Any

import pytest
from typer.testing import CliRunner

import greenadapt
from greenadapt.cli import app
from greenadapt.cli.settings import commands_of
from tests.support.pages import GROUP

PANELS = {
    "Adapt a model": ["corpus", "w2v", "align", "expand", "adapt", "neighbours", "assess", "export"],
    "Train": ["pretrain", "finetune", "tasks", "evaluate"],
    "Use": ["predict", "qa", "compile", "index", "search", "serve"],
    "Look after results": ["report", "cost", "status", "clean", "doctor", "push"],
}


COMMANDS = {tuple(key.split("-")): command for key, command in commands_of(GROUP).items()}
"""Words → command."""


def printed(*words: str) -> str:
    """What the command line prints on a terminal of 80 columns."""
    result = CliRunner().invoke(app, [*words], env={"COLUMNS": "80"}, prog_name="greenadapt")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def panels(text: str) -> dict[str, list[str]]:
    """Title of each panel → its lines."""
    matches = re.findall(r"╭─ (.*?) ─+╮\n(.*?)╰─", text, re.DOTALL)
    return {title: [line[2:-1] for line in lines.splitlines()] for title, lines in matches}


def test_commands_are_in_panels_in_the_order_of_the_work() -> None:
    titles = {title: [line.split()[0] for line in lines] for title, lines in panels(printed("--help")).items()}
    assert [name for name in titles if name in PANELS] == [*PANELS]
    assert {title: titles[title] for title in PANELS} == PANELS
    assert {*GROUP.commands} == {name for names in PANELS.values() for name in names}


def test_version() -> None:
    assert printed("--version") == f"greenadapt {greenadapt.__version__}\n"


def options_in(text: str) -> set[str]:
    """The options that have a line of their own in a help."""
    lines = [line for lines in panels(text).values() for line in lines]
    return {name for line in lines for name in re.findall(r"^(?:[* ]  )?(--[a-z][a-z-]*)", line)}


def options_of(command: Any) -> set[str]:
    """The first name of each option that a command has, beside those for its help."""
    return {parameter.opts[0] for parameter in command.params if parameter.param_type_name == "option"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_every_option_uncut_and_with_a_text(words: tuple[str, ...]) -> None:
    text, parameters = printed(*words, "--help"), COMMANDS[words].params
    assert options_in(text) == {"--help", *options_of(COMMANDS[words])}
    assert "Output and settings" in panels(text)
    names = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    shown_words = {*text.replace(",", " ").replace(". ", " ").split()}
    assert [name for name in names if name.startswith("-") and name not in shown_words] == []
    assert all(parameter.help for parameter in parameters)
    letters = re.sub(r"[\s│]", "", text)  # Markdown takes no underscore or star for its own
    assert [name.help for name in parameters if re.sub(r"[\s`]", "", name.help) not in letters] == []
