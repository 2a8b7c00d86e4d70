"""An option that would have no effect is refused with the one that it needs, or that stands in its way."""

from pathlib import Path
from typing import get_args

import pytest
import typer.main

import greenadapt
from greenadapt.cli import app
from greenadapt.cli.options import FIELDS
from greenadapt.cli.settings import commands_of, options_of
from greenadapt.config import ExpandConfig
from greenadapt.errors import UsageError
from tests.conftest import WORDS, Run, last_line, tiny_model_in

COMMANDS = commands_of(typer.main.get_command(app))


@pytest.fixture
def maps(run_alone: Run, tmp_path: Path) -> Path:
    """``one`` and ``other``, two base models, ``copy`` of the first, and maps of the first, of two corpora."""
    models = [tiny_model_in(tmp_path, name=name) for name in ("one", "copy")]
    models.append(tiny_model_in(tmp_path, name="other", width=48))
    for name in ("text", "notes"):
        (tmp_path / f"{name}.txt").write_text(f"{' '.join(WORDS)} tachycardia {name}x\n" * 30)
        run_alone("w2v", "-c", f"{name}.txt", "-m", models[0], "--min-count", 1, "--epochs", 1, "--workers", 1)
        run_alone("align", "-c", f"{name}.txt", "-m", models[0], "-o", f"map-{name}")
    return tmp_path


def test_a_map_of_another_model_or_corpus_is_refused(run_alone: Run, maps: Path) -> None:
    command = ("expand", "-o", "adapted", "--alignment", "map-text")
    refused = last_line(run_alone(*command, "-m", "other", code=2))
    assert str(maps / "one") in refused
    assert "--model names other" in refused
    refused = last_line(run_alone(*command, "-c", "notes.txt", code=2))
    assert "map-text is of the corpus text" in refused
    assert "--corpus names notes" in refused
    assert not (maps / "adapted").exists()
    run_alone("expand", "--alignment", "map-text", "-m", "copy", "-c", "text.txt", "-o", "adapted")  # the same files
    [vectors, *_] = (maps / "ws").glob("names/notes*/*/w2v")
    refused = last_line(run_alone("align", "-m", "one", "--vectors", vectors, "-c", "text.txt", "-o", "m", code=2))
    assert "is of the corpus notes" in refused
    refused = last_line(run_alone("export", "x.txt", "--vectors", vectors, "-m", "other", code=2))
    assert "--model names other" in refused


def test_what_is_set_for_all_commands_does_not_stand_in_the_way(
    run_alone: Run, maps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"MODEL": "other", "CORPUS": "notes.txt", "REPLACE_ALL": "1"}.items():
        monkeypatch.setenv(f"GREENADAPT_{name}", value)
    run_alone("expand", "--alignment", "map-text", "-o", "adapted")
    assert "replace" not in (maps / "adapted" / "README.md").read_text()
    run_alone("status", "adapted")
    refused = last_line(run_alone("expand", "--alignment", "map-text", "--replace-all", "-o", "other", code=2))
    assert refused.startswith("greenadapt: --replace-all has no effect without --rows map")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("expand -c t.txt --rows form --replace-all", ("--replace-all", "--rows map", "--rows form")),
        ("finetune --task ner -m m --train t.tsv --strategy single", ("--strategy", "--memory")),
        ("adapt -c t.txt -m m --field abstract", ("--field", "t.txt", "--format")),
        ("report a --corpus pydocs", ("--corpus", "folders")),
    ],
)  # fmt: skip
def test_both_options_are_named(run_alone: Run, tmp_path: Path, words: str, names: tuple[str, ...]) -> None:
    (tmp_path / "t.txt").write_text("some text\n")
    refused = last_line(run_alone(*words.split(), code=2))
    assert [name for name in names if name not in refused] == []


def test_options_that_need_others_need_those_of_their_command() -> None:
    n_options = 0
    for key, command in COMMANDS.items():
        fields = getattr(command.callback, FIELDS, {})
        for field in fields.values():
            name, _, value = field.option.needs.removeprefix("--").partition(" ")
            n_options += bool(name)
            assert not name or name in options_of(command), (key, field.name)
            assert not value or value in get_args(fields[name.replace("-", "_")].kind), (key, field.name)
    assert n_options > 20


def test_the_same_in_python() -> None:
    with pytest.raises(UsageError, match=r"--replace-all .* --rows map"):
        greenadapt.adapt("t.txt", "minilm", expand=ExpandConfig(replace_all=True))
