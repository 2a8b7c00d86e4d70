"""What --help shows: commands in panels, each described in nine words."""

import re

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from tests.support.pages import GROUP

PANELS = {
    "Adapt a model": ["corpus", "w2v", "align", "expand", "adapt", "neighbours", "assess", "export"],
    "Train": ["pretrain", "finetune", "tasks", "evaluate"],
    "Use": ["predict", "qa", "compile", "index", "search", "serve"],
    "Look after results": ["report", "cost", "status", "clean", "doctor", "push", "demo"],
}


def printed(*words: str) -> str:
    """What the command line prints on a terminal of 80 columns."""
    result = CliRunner().invoke(app, [*words], env={"COLUMNS": "80"}, prog_name="greenadapt")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def panels(text: str) -> dict[str, list[str]]:
    """Title of each panel → its lines."""
    found = re.findall(r"╭─ (.*?) ─+╮\n(.*?)╰─", text, re.DOTALL)
    return {title: [line.strip("│ ") for line in lines.splitlines()] for title, lines in found}


def test_commands_are_in_panels_in_the_order_of_the_work() -> None:
    shown = {title: [line.split()[0] for line in lines] for title, lines in panels(printed("--help")).items()}
    assert [name for name in shown if name in PANELS] == [*PANELS]
    assert {title: shown[title] for title in PANELS} == PANELS
    assert "bool" not in printed("--help")


@pytest.mark.parametrize("name", [name for names in PANELS.values() for name in names])
def test_a_command_is_described_in_at_most_nine_words(name: str) -> None:
    for command in (GROUP.commands[name], *getattr(GROUP.commands[name], "commands", {}).values()):
        assert 1 < len(command.help.partition("\n\n")[0].split()) <= 9, command.help
