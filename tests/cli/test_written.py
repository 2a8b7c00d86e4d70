"""No command writes onto what it reads, into it, or around it; a new command or option has to be listed here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from greenadapt.api.calls import adapt
from greenadapt.cli import app
from greenadapt.cli.option_checks import OTHER, READ, WRITTEN
from greenadapt.errors import ConflictError, UsageError
from tests.conftest import Run, last_line
from tests.support.small_tasks import TinyModel, adapted, known_text, ner_file, worded_model


def commands(group: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def texts_of(command: Any) -> set[str]:
    """The parameters whose values are texts or paths."""
    return {one.name for one in command.params if any(kind in one.display_type(None) for kind in ("str", "ath"))}


@pytest.mark.parametrize(("name", "command"), [*commands()])
def test_every_option_is_known_to_be_read_written_or_neither(name: str, command: Any) -> None:
    assert texts_of(command) <= READ | WRITTEN | OTHER, "add it to greenadapt/cli/options/inputs.py"
    assert not READ & WRITTEN
    assert not (READ | WRITTEN) & OTHER


FILES = {
    "predictions": "out.json",
    "logits": "out.safetensors",
    "null_odds": "out.json",
    "file": "out.vec",
}
"""Written parameters that are files → a name; the others are folders."""
GIVEN: dict[str, tuple[str, ...]] = {
    "adapt": ("-c", "docs", "-m", "model"),
    "w2v": ("-c", "docs", "-m", "model"),
    "corpus prepare": ("docs", "-m", "model"),
    "align": ("--vectors", "vectors/a.vec", "-m", "model"),
    "expand": ("--alignment", "aligned"),
    "assess": ("-m", "model", "--base", "other", "--train", "data/train.tsv", "--task", "ner"),
    "export": ("--vectors", "vectors/a.vec"),
    "pretrain": ("--text", "docs", "-m", "model"),
    "finetune": (
        "-m",
        "model",
        "--train",
        "data/train.tsv",
        "--test",
        "data/train.tsv",
        "--task",
        "ner",
        "--compare",
        "other",
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
ONLY_RESULTS = {"neighbours", "status", "clean", "doctor", "cost", "demo", "corpus list", "corpus show"}
"""Commands that get nothing to read but names of the workspace, or write nothing."""


def test_every_command_that_writes_is_tried() -> None:
    writing = {name for name, command in commands() if texts_of(command) & WRITTEN}
    assert writing == GIVEN.keys() | ONLY_RESULTS


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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(name: str) -> list[tuple[str, str]]:
    """Option and parameter of what a command writes."""
    command = dict(commands())[name]
    return [(one.opts[0], one.name) for one in command.params if one.name in WRITTEN]


@pytest.mark.slow
def test_nothing_is_written_onto_or_into_what_is_read(run_alone: Run, inputs: Path) -> None:
    before = contents(inputs)
    for name, given in GIVEN.items():
        folders = [value for value in given if (inputs / value).is_dir()]
        files = [value for value in given if (inputs / value).is_file()]
        for option, parameter in written(name):
            is_file = parameter in FILES or (parameter == "out" and name in ("predict", "report"))
            own = FILES.get(parameter, "out.html")
            places = [f"{folder}/{own if is_file else 'new'}" for folder in folders]
            places += [f"{folder}/config.json" for folder in folders if is_file and "vec" not in own]
            places += [file for file in files if is_file] + [folder for folder in folders if not is_file]
            for place in places:
                if parameter == "workspace" and name not in INTO_WORKSPACE:
                    continue
                refused = _refused(run_alone, name, given, option, place)
                assert contents(inputs) == before, (name, option, place)
                assert "input" in refused or "holds no" in refused or "something else" in refused, (name, option, place)


def _refused(run: Run, name: str, given: tuple[str, ...], option: str, place: str) -> str:
    options = [place] if option == "file" else [option, place]
    needed = ["--out", "px"] if name == "compile" and option != "--out" else []
    for code in (2, 1):
        try:
            return last_line(run(*name.split(), *given, *needed, *options, code=code))
        except AssertionError as error:
            if code == 1:
                raise AssertionError(f"{name} {option} {place}: {error}") from None
    raise AssertionError


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
