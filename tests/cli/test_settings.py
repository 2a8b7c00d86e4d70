"""Options from a file and from the environment: which counts, what is refused, and what manifests keep."""

from pathlib import Path
from typing import Any

import pytest
import typer.main

from greenadapt.cli import app
from greenadapt.cli.settings import command_line, commands_of
from tests.conftest import Run, last_line

GROUP: Any = typer.main.get_command(app)
COMMANDS = commands_of(GROUP)


def parsed(*words: str) -> dict[str, Any]:
    """The parameters that a command gets."""
    context = GROUP.make_context("greenadapt", list(words))
    name, command, remaining = GROUP.resolve_command(context, list(words))
    return dict(command.make_context(name, remaining, parent=context).params)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "ws"))
    return tmp_path


def test_command_line_before_environment_before_file_before_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in each, what is set for the command before what is set for all."""
    assert parsed("w2v")["epochs"] is None  # chosen by the size of the text
    (folder / "s.toml").write_text("epochs = 6\n[finetune]\nepochs = 60\n")
    file = ("--config", "s.toml")
    assert parsed("w2v", *file)["epochs"] == 6
    (folder / "s.toml").write_text("epochs = 6\n[w2v]\nepochs = 7\n")
    assert parsed("w2v", *file)["epochs"] == 7
    assert parsed("adapt", *file)["epochs"] == 6
    monkeypatch.setenv("GREENADAPT_EPOCHS", "8")
    assert parsed("w2v", *file)["epochs"] == 8
    monkeypatch.setenv("GREENADAPT_W2V_EPOCHS", "9")
    assert parsed("w2v", *file)["epochs"] == 9
    assert parsed("adapt", *file)["epochs"] == 8
    assert parsed("w2v", *file, "--epochs", "10")["epochs"] == 10
    monkeypatch.setenv("GREENADAPT_W2V_EPOCHS", "")
    assert parsed("w2v", *file)["epochs"] == 8


def test_the_corpus_as_an_argument_is_before_what_is_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And belongs to no other option: the command that is kept names one corpus."""
    (folder / "s.toml").write_text('corpus = "set.txt"\n')
    monkeypatch.setenv("GREENADAPT_CONFIG", "s.toml")
    for command in ("adapt", "w2v", "align", "expand"):
        assert parsed(command)["corpus"] == "set.txt"
        taken = parsed(command, "--seed", "3", "given.txt") if command != "expand" else parsed(command, "given.txt")
        assert taken["corpus"] == "given.txt"
        assert "set.txt" not in command_line()
        assert parsed(*command_line().split()[1:])["corpus"] == "given.txt"


def test_all_kinds_of_values(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "s.toml").write_text(
        'max_memory = "1G"\nquiet = true\n[w2v]\nkeep-duplicates = false\nsample = 1e-4\nfield = ["a b", "c"]\n'
        '[predict]\ninput = "x.txt"\nmodel = "one"\n[corpus-prepare]\nstrict = false\n'
    )
    monkeypatch.setenv("GREENADAPT_CONFIG", "s.toml")
    monkeypatch.setenv("GREENADAPT_W2V_STRICT", "no")
    monkeypatch.setenv("GREENADAPT_FINETUNE_TRAIN", "a.tsv 'b c.tsv'")
    w2v = parsed("w2v")
    names = ("max_memory", "quiet", "keep_duplicates", "sample", "field", "strict")
    assert [w2v[name] for name in names] == ["1G", True, False, 1e-4, ["a b", "c"], False]
    assert parsed("finetune")["train"] == ["a.tsv", "b c.tsv"]
    predict = parsed("predict")  # whose --model is required
    assert (predict["source"], predict["model"]) == ("x.txt", ["one"])
    context = GROUP.make_context("greenadapt", ["corpus", "prepare", "x"])
    group = GROUP.commands["corpus"].make_context("corpus", ["prepare", "x"], parent=context)
    prepare = group.command.commands["prepare"].make_context("prepare", ["x"], parent=group)
    assert (prepare.params["strict"], prepare.params["max_memory"]) == (False, "1G")


def test_manifests_keep_a_command_that_makes_the_same_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "s.toml").write_text('workspace = "elsewhere"\nseed = 3\n[w2v]\nkeep-duplicates = false\n')
    monkeypatch.setenv("GREENADAPT_W2V_EPOCHS", "7")
    before = parsed("w2v", "--config", "s.toml", "--seed", "4")
    command = command_line()
    assert command == "greenadapt w2v --epochs 7 --seed 4 --drop-duplicates"
    monkeypatch.delenv("GREENADAPT_W2V_EPOCHS")
    after = parsed(*command.split()[1:])
    left_out = {"workspace", "config"}
    assert {name: value for name, value in after.items() if name not in left_out} == {
        name: value for name, value in before.items() if name not in left_out
    }


@pytest.mark.parametrize(
    ("content", "code", "facts"),
    [
        ("[w2v]\nepochs = 0", 2, ("in s.toml, [w2v] epochs is 0, must be greater than or equal to 1",)),
        ("[w2v]\nepoch = 1", 1, ("s.toml, [w2v] has the unknown key epoch", "did you mean epochs")),
        ("[w2w]\nepochs = 1", 1, ("s.toml has the unknown table w2w", "did you mean w2v")),
        ("[w2v]\nepochs 1", 1, ("s.toml is not TOML", "line 2")),
        (None, 1, ("no file s.toml",)),
    ],
)
def test_what_is_refused_is_named_with_its_place(
    run_alone: Run, tmp_path: Path, content: str | None, code: int, facts: tuple[str, ...]
) -> None:
    if content is not None:
        (tmp_path / "s.toml").write_text(content)
    refused = last_line(run_alone("w2v", "--config", "s.toml", code=code))
    assert [fact for fact in facts if fact not in refused] == []


def test_a_wrong_variable_is_named(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_W2V_EPOCHS", "three")
    assert "GREENADAPT_W2V_EPOCHS is 'three': must be a valid integer" in last_line(run_alone("w2v", code=2))
    monkeypatch.setenv("GREENADAPT_STRICT", "perhaps")
    assert "GREENADAPT_STRICT is 'perhaps', must be true or false" in last_line(run_alone("w2v", code=2))
    run_alone("w2v", "--help")  # what is set does not stand in its way


def test_what_is_set_for_all_is_ignored_where_it_has_no_use(run_alone: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_CORPUS", "pydocs")
    assert "nowhere" in last_line(run_alone("cost", "nowhere", code=1))
    assert command_line() == "greenadapt cost nowhere"
    assert "--corpus chooses from the workspace" in last_line(run_alone("cost", "nowhere", "-c", "pydocs", code=2))


def test_an_empty_value_is_no_path(run_alone: Run) -> None:
    """As of a shell variable that is not set: the path would be that of the current folder."""
    for options in (("--text", "a.txt", "--text", ""), ("--text=",), ("--text", "a.txt", "-c", "")):
        assert " is empty: give it" in last_line(run_alone("pretrain", "-m", "minilm", *options, code=2))
