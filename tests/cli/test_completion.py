"""What the shell offers: corpora, models and commands; without heavy imports, and silent about errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.corpus.recipes import list_recipes
from greenadapt.progress import Silent
from greenadapt.store.results import Job, Outcome, run
from greenadapt.store.workspace import Workspace


def offered(shell: str, line: str) -> list[str]:
    """The completions of the last word of ``line``."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    shell_variables = {"_GREENADAPT_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = CliRunner().invoke(app, [], env=variables | shell_variables, prog_name="greenadapt")
    assert (result.exit_code, result.stderr) == (0, "")
    return [line for line in result.stdout.splitlines() if line]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results for two corpora, and two folders of models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "ws"))
    for corpus in ("papers", "notes"):
        job = Job("align", {"corpus": corpus}, {}, lambda folder: Outcome({}))
        run(Workspace.find().place(job, corpus, "minilm"), job, Silent())
    for folder in ("bert", "runs/ner"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text("{}")
    (tmp_path / "texts").mkdir()
    return tmp_path


NAMED = [recipe.name for recipe in list_recipes()]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("greenadapt w2v --corpus ", sorted([*NAMED, "notes", "papers"])),
        ("greenadapt w2v --corpus pap", ["papers"]),
        ("greenadapt corpus show pap", ["papers"]),
        ("greenadapt adapt pap", ["papers"]),
        ("greenadapt align -c papers -m ", ["bert", "minilm", "mpnet", "runs/ner"]),
        ("greenadapt predict -m runs/", ["runs/ner"]),
        ("greenadapt finetune --compare be", ["bert"]),
        ("greenadapt align --meth", ["--method"]),
        ("greenadapt align --rand", ["--random-scale"]),
        ("greenadapt align --help", ["--help"]),
        ("greenadapt align --workspace elsewhere -c pap", []),
    ],
)
@pytest.mark.usefixtures("workspace")
def test_values(line: str, values: list[str]) -> None:
    assert offered("bash", line) == values


@pytest.mark.usefixtures("workspace")
def test_every_shell() -> None:
    assert offered("fish", "greenadapt w2v -c pap") == ["papers"]
    assert offered("zsh", "greenadapt w2v -c pap") == ["""_arguments '*: :(("papers"))'"""]


def test_errors_are_silent(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace / "file").write_text("")
    assert offered("bash", "greenadapt w2v --workspace file -c ") == []
    (workspace / "s.toml").write_text("wrong = 1")
    monkeypatch.setenv("GREENADAPT_CONFIG", "s.toml")
    assert offered("bash", "greenadapt align -c pap") == ["papers"]
    (workspace / "s.toml").write_text('workspace = "elsewhere"')
    assert offered("bash", "greenadapt align -c pap") == []


@pytest.mark.slow
def test_it_loads_nothing_heavy(workspace: Path) -> None:
    variables = {"COMP_WORDS": "greenadapt w2v -m mini", "COMP_CWORD": "3", "_GREENADAPT_COMPLETE": "complete_bash"}
    code = (
        "import sys, atexit\n"
        "from greenadapt.cli import app\n"
        "atexit.register(lambda: print(sorted({'pydantic', 'rich', 'numpy', 'torch'} & {*sys.modules})))\n"
        "app(prog_name='greenadapt')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert process.stdout == "minilm\n[]\n"
