"""An empty value, as of a shell variable that is not set, is no path: it would be the current folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from greenadapt.cli import app
from greenadapt.corpus.recipes import read_recipe
from greenadapt.errors import InputError
from tests.conftest import Run, last_line


def _parameters(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every parameter of every command that takes a value, with the words that call the command."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from _parameters(inner, (*name, word))
    if name and not hasattr(command, "commands"):
        yield from ((name, one) for one in command.params if not getattr(one, "is_flag", False) and one.name != "help")


def _arguments(name: tuple[str, ...]) -> list[Any]:
    """The positional parameters of a command."""
    return [one for words, one in PARAMETERS if words == name and not one.opts[0].startswith("-")]


PARAMETERS = [*_parameters(typer.main.get_command(app))]


@pytest.mark.slow
def test_every_command_refuses_them(run_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("text that nobody asked to be read\n")
    assert len(PARAMETERS) > 200
    assert {name[0] for name, _ in PARAMETERS} >= {"adapt", "corpus", "finetune", "predict", "qa", "tasks"}
    for name, parameter in PARAMETERS:
        option = parameter.opts[0]
        is_option = option.startswith("-")
        before = 0 if is_option else [one.name for one in _arguments(name)].index(parameter.name)
        refused = run_alone(*name, *([option, ""] if is_option else ["x"] * before + [""]), code=2)
        shown = option if is_option else parameter.metavar or option.upper()
        assert last_line(refused).startswith(f"greenadapt: {shown} is empty: give it")


def test_also_among_several_and_behind_an_equals_sign(run_alone: Run) -> None:
    for options in (("--text", "a.txt", "--text", ""), ("--text=",), ("--text", "a.txt", "-c", "")):
        assert " is empty: give it" in last_line(run_alone("pretrain", "-m", "minilm", *options, code=2))
    assert "WORDS is empty" in last_line(run_alone("neighbours", "heart", "", code=2))


@pytest.mark.parametrize("extra", ["", "first = 1\nlast = 2\n"])
def test_a_recipe_without_an_address(tmp_path: Path, extra: str) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'title = "t"\nlicence = "l"\nformat = "text"\n[[sources]]\nurl = ""\n{extra}')
    with pytest.raises(InputError, match=r"r\.toml: url of a source is empty"):
        read_recipe(recipe)
