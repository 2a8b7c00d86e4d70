"""No command writes onto what it reads, into it, or around it; a new command or option has to be listed here."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from greenadapt.api.calls import adapt
from greenadapt.cli import app
from greenadapt.cli.option_checks import READ, WRITTEN
from greenadapt.cli.settings import commands_of
from greenadapt.errors import ConflictError, UsageError
from tests.conftest import Run, contents, last_line
from tests.support.pages import GROUP
from tests.support.small_tasks import TinyModel, adapted, known_text, ner_file, worded_model

COMMANDS = {key.replace("-", " "): command for key, command in commands_of(GROUP).items()}
NEITHER = frozenset({
    "address", "allow_host", "cluster", "columns", "command", "exclude", "field", "format", "host", "label_field",
    "layers", "max_body", "max_memory", "max_time",
    "memory_layers", "memory_source", "message", "older_than", "only", "query", "question", "remove",
    "report_to", "repo", "revision", "task", "text_field", "variant", "words",
})  # fmt: skip
"""Parameters whose values are strings, but no paths."""


def texts_of(command: Any) -> set[str]:
    """The parameters whose values are texts or paths."""
    kinds = {parameter.name: parameter.display_type(None) for parameter in command.params}
    return {name for name, kind in kinds.items() if "str" in kind or "ath" in kind}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_read_written_or_neither(name: str) -> None:
    assert texts_of(COMMANDS[name]) <= READ | WRITTEN | NEITHER, "add it to greenadapt/cli/option_checks.py"


def test_no_option_is_of_two_kinds() -> None:
    assert not READ & WRITTEN
    assert not (READ | WRITTEN) & NEITHER


FILES = {"predictions": "out.json", "logits": "out.safetensors", "file": "out.vec"}
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
INTO_WORKSPACE = {"adapt", "w2v", "corpus prepare", "align", "expand", "assess"}
"""Commands that write into the workspace by default."""
ONLY_RESULTS = {"neighbours", "status", "clean", "doctor", "cost", "corpus list", "corpus show"}
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
def test_nothing_is_written_onto_or_into_what_is_read(run_alone: Run, inputs: Path) -> None:
    before = contents(inputs)
    for name, words in INPUTS.items():
        folders = [word for word in words if (inputs / word).is_dir()]
        files = [word for word in words if (inputs / word).is_file()]
        written = [parameter for parameter in COMMANDS[name].params if parameter.name in WRITTEN]
        for parameter in written:
            if parameter.name == "workspace" and name not in INTO_WORKSPACE:
                continue
            is_file = parameter.name in FILES or (parameter.name == "out" and name in ("predict", "report"))
            file_name = FILES.get(parameter.name, "out.html")
            paths = [f"{folder}/{file_name if is_file else 'new'}" for folder in folders]
            paths += [f"{folder}/config.json" for folder in folders if is_file and "vec" not in file_name]
            paths += files if is_file else folders
            for path in paths:
                options = [path] if parameter.name == "file" else [parameter.opts[0], path]
                options += ["--out", "px"] if name == "compile" and parameter.name != "out" else []
                command = [*name.split(), *words, *options]
                failure = CliRunner().invoke(app, command)
                assert failure.exit_code in (1, 2), command
                assert contents(inputs) == before, command
                assert re.search("input|holds no|something else", last_line(failure)), command


@pytest.mark.slow
def test_a_file_beside_what_is_read_is_written(run_alone: Run, inputs: Path) -> None:
    run_alone("export", "vectors/b.vec", "--vectors", "vectors/a.vec")
    assert (inputs / "vectors" / "b.vec").is_file()
    run_alone("index", "--documents", "docs/a.txt", "--out", "docs/index")
    assert (inputs / "docs" / "index" / "index.json").is_file()


@pytest.mark.slow
def test_in_python(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(inputs)
    monkeypatch.chdir(inputs)
    for settings in ({"out": "docs/adapted"}, {"out": "docs"}, {"workspace": "docs/ws"}, {"out": "other/adapted"}):
        with pytest.raises((UsageError, ConflictError), match=r"which is an input|holds no greenadapt result"):
            adapt("docs", "other", progress=False, **settings)
    assert contents(inputs) == before


@pytest.mark.slow
def test_the_file_of_a_corpus_whose_results_are_used_is_not_written_onto(run_alone: Run, tiny_model: TinyModel) -> None:
    text = Path("text.txt")
    text.write_text(known_text())
    run_alone("w2v", text, "-m", tiny_model(), "--dim", 4, "--epochs", 1, "--min-count", 1)
    for command in (("export", "-c", text, text), ("report", "-c", text, "-o", text)):
        assert "is an input (--corpus)" in last_line(run_alone(*command, code=2))
    assert text.read_text() == known_text()
