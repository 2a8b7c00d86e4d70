"""What the shell offers: commands, options and their choices; without heavy imports, and silent about errors."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app


def offered(shell: str, line: str) -> list[str]:
    """The completions of the last word of ``line``."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    shell_variables = {"_GREENADAPT_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = CliRunner().invoke(app, [], env=variables | shell_variables, prog_name="greenadapt")
    assert (result.exit_code, result.stderr) == (0, "")
    return [line for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("greenadapt neigh", ["neighbours"]),
        ("greenadapt align --meth", ["--method"]),
        ("greenadapt align --method pro", ["procrustes"]),
        ("greenadapt align --workspace elsewhere -c text --help", ["--help"]),
    ],
)
def test_commands_options_and_choices(line: str, values: list[str]) -> None:
    assert offered("bash", line) == values


def test_wrong_settings_are_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.toml").write_text("wrong = 1")
    monkeypatch.setenv("GREENADAPT_CONFIG", str(tmp_path / "s.toml"))
    assert offered("bash", "greenadapt align --meth") == ["--method"]
