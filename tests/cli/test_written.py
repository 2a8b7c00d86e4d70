"""No command writes onto a file or into a folder that is there."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from greenadapt.api.calls import adapt
from greenadapt.cli import app
from greenadapt.cli.settings import commands_of
from greenadapt.errors import ConflictError
from tests.conftest import Run, contents, last_line
from tests.support.pages import GROUP
from tests.support.small_tasks import TinyModel, adapted, known_text, ner_file, worded_model

COMMANDS = {key.replace("-", " "): command for key, command in commands_of(GROUP).items()}
WRITTEN = frozenset({"file", "out", "predictions", "workspace"})
"""Parameters that are files or folders to write."""


def texts_of(command: Any) -> set[str]:
    """The parameters whose values are texts or paths."""
    kinds = {parameter.name: parameter.display_type(None) for parameter in command.params}
    return {name for name, kind in kinds.items() if "str" in kind or "ath" in kind}


FILES = {"predictions": "out.json", "file": "out.vec"}
"""Written parameters that are files → a name; the others are folders."""
INPUTS: dict[str, tuple[str, ...]] = {
    "adapt": ("-c", "docs", "-m", "model"),
    "w2v": ("-c", "docs", "-m", "model"),
    "corpus prepare": ("docs", "-m", "model"),
    "align": ("--vectors", "vectors/a.vec", "-m", "model"),
    "expand": ("--alignment", "aligned"),
    "assess": ("-m", "model", "--base", "other", "--train", "data/train.tsv", "--task", "ner"),
    "export": ("--vectors", "vectors/a.vec"),
    "pretrain": ("--text", "docs", "-m", "model"),
    "finetune": (
        *("-m", "model", "--train", "data/train.tsv", "--test", "data/train.tsv"),
        *("--task", "ner", "--compare", "other"),
    ),
    "evaluate": ("-m", "model", "--test", "data/train.tsv"),
    "compile": ("-m", "model"),
    "predict": ("-m", "model", "-m", "other", "-i", "docs/a.txt"),
    "index": ("--documents", "docs", "-m", "model"),
    "qa": ("-m", "model", "--documents", "docs", "-q", "What?"),
    "report": ("aligned",),
}
"""What is read by each command that writes."""
ONLY_RESULTS = {"neighbours", "status", "clean", "doctor", "cost", "corpus list"}
"""Commands that read only the workspace, or write nothing."""


def test_every_command_that_writes_is_tried() -> None:
    writing = {name for name, command in COMMANDS.items() if texts_of(command) & WRITTEN}
    assert writing == INPUTS.keys() | ONLY_RESULTS


@pytest.fixture
def inputs(run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> Path:
    """A folder with what commands read."""
    adapted(tiny_model).rename(tmp_path / "model")
    (tmp_path / "base").rename(tmp_path / "other")
    for name in ("docs", "data", "vectors"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs" / "a.txt").write_text(known_text())
    ner_file(tmp_path / "data" / "train.tsv")
    worded = worded_model(tiny_model)
    words = known_text().split()
    rows = [f"{word} {number / 7:.3f} {number % 3} 1.0" for number, word in enumerate(dict.fromkeys(words))]
    (tmp_path / "vectors" / "a.vec").write_text("\n".join([f"{len(rows)} 3", *rows]) + "\n")
    run_alone("align", "--vectors", "vectors/a.vec", "-m", worded, "--out", "aligned", "--method", "random")
    return tmp_path


@pytest.mark.slow
def test_nothing_is_written_onto_or_into_what_is_there(inputs: Path) -> None:
    before = contents(inputs)
    for name, words in INPUTS.items():
        for parameter in COMMANDS[name].params:
            if parameter.name not in WRITTEN - {"workspace"}:
                continue
            is_file = parameter.name in FILES or (parameter.name == "out" and name in ("predict", "report"))
            paths = [inputs / "vectors" / "a.vec"] if is_file else [inputs / "data", inputs / "other"]
            for path in paths:
                option = [] if parameter.name == "file" else [parameter.opts[0]]
                command = [*name.split(), *words, *option, str(path)]
                failure = CliRunner().invoke(app, command)
                assert failure.exit_code == 1, (command, failure.output, failure.exception)
                assert contents(inputs) == before, command
                assert re.search("exists|holds", last_line(failure)), command


@pytest.mark.slow
def test_in_python(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(inputs)
    monkeypatch.chdir(inputs)
    with pytest.raises(ConflictError, match="holds no result of greenadapt"):
        adapt("docs", "other", out="docs", progress=False)
    assert contents(inputs) == before
