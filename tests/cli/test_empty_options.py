"""An empty value, as of a shell variable that is not set, is no path: it would be the current folder."""

from pathlib import Path

import pytest

from greenadapt.cli.settings import commands_of
from tests.conftest import Run, last_line
from tests.support.pages import GROUP


@pytest.mark.slow
def test_every_command_refuses_them(run_alone: Run, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("text that no option names\n")
    n_options = 0
    for key, command in commands_of(GROUP).items():
        with_value = [parameter for parameter in command.params if not getattr(parameter, "is_flag", False)]
        n_arguments = 0
        for parameter in with_value:
            option = parameter.opts[0]
            if option.startswith("-"):
                label, words = option, [option, ""]
            else:
                label, words = parameter.metavar or option.upper(), ["x"] * n_arguments + [""]
                n_arguments += 1
            refused = run_alone(*key.split("-"), *words, code=2)
            assert last_line(refused).startswith(f"greenadapt: {label} is empty: give it")
        n_options += len(with_value)
    assert n_options > 200


def test_also_among_several_and_behind_an_equals_sign(run_alone: Run) -> None:
    for options in (("--text", "a.txt", "--text", ""), ("--text=",), ("--text", "a.txt", "-c", "")):
        assert " is empty: give it" in last_line(run_alone("pretrain", "-m", "minilm", *options, code=2))
    assert "WORDS is empty" in last_line(run_alone("neighbours", "heart", "", code=2))
