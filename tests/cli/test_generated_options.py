"""Options that come from configuration classes, and the examples below each help."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from greenadapt import config as module
from greenadapt.checkpoints.source import PACKAGED
from greenadapt.cli import app
from greenadapt.cli.options import Pick, with_options
from greenadapt.config import AlignConfig, ExpandConfig, MemoryConfig, RunConfig, W2VConfig
from greenadapt.corpus.recipes import list_recipes
from greenadapt.errors import UsageError
from greenadapt.fields import Checked, option_fields
from greenadapt.stages.session import data_name
from tests.conftest import Run, last_line


def _leaves(command: Any) -> Iterator[Any]:
    for one in getattr(command, "commands", {}).values():
        yield from _leaves(one) if hasattr(one, "commands") else [one]


LEAVES = [*_leaves(typer.main.get_command(app))]


@pytest.mark.parametrize("command", LEAVES, ids=lambda command: command.name)
def test_every_help_ends_with_examples_that_can_be_typed(command: Any) -> None:
    lines = [line for line in command.epilog.split("\n\n") if line.startswith("- `greenadapt ")]
    assert lines
    for line in lines:
        _values(shlex.split(line.strip("-` "))[1:])


def test_examples_read_folders_that_examples_make() -> None:
    """Whoever types them finds what an earlier command wrote; files are the reader's own."""
    made, read = {"runs", *PACKAGED, *(recipe.name for recipe in list_recipes())}, set()
    for command in LEAVES:
        for line in re.findall(r"`greenadapt ([^`]+)`", command.epilog):
            own = _values(shlex.split(line))
            made |= {str(own["out"])} if own.get("out") else {str(path) for path in _made_by_default(command, own)}
            if own.get("compare"):
                made.add(f"{own['out']}-{own['compare']}")
            made |= {str(own["file"])} if command.name == "export" else set()
            at_address = own.get("search") or own.get("address")  # where the first argument is the query
            for name in ("model", "general", "base", "vectors", "index", "folder", "folders", "corpus"):
                value = None if at_address else own.get(name)
                values = value if isinstance(value, list | tuple) else [value]
                read |= {(str(each), line) for each in values if each not in (None, True, False)}
    assert len(read) > 20
    assert sorted((name, line) for name, line in read if name not in made and not _is_data(name)) == []


def _values(words: list[str]) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    while hasattr(group, "commands"):
        group = group.commands[words.pop(0)]
        context = typer.Context(group, info_name=group.name, parent=context)
    group.parse_args(context, words)
    return dict(context.params)


def _made_by_default(command: Any, own: dict[str, Any]) -> list[Path]:
    """Where ``finetune`` writes without --out, for a packaged model and one task."""
    if command.name != "finetune" or own.get("tasks"):
        return []
    return [Path("runs") / f"{own['task']}-{own['model']}-{data_name(own['train'])}"]


def _is_data(name: str) -> bool:
    return Path(name).suffix in (".txt", ".jsonl", ".tsv")


@pytest.mark.parametrize("command", LEAVES, ids=lambda command: command.name)
def test_every_option_has_help(command: Any) -> None:
    assert [param.name for param in command.params if not getattr(param, "help", None)] == []


@pytest.mark.parametrize("command", LEAVES, ids=lambda command: command.name)
def test_no_option_is_cut_at_80_columns(
    command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _full_help(command, monkeypatch, capsys)
    words = shown.replace(",", " ").replace(". ", " ").split()
    options = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
    options = [name for name in options if name.startswith("-")]
    assert options
    assert [name for name in options if name not in words] == []
    assert "<bool>" not in words


@pytest.mark.parametrize("name", ["adapt", "w2v", "finetune", "pretrain"])
def test_common_options_come_first_and_the_text_has_room(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [command] = [one for one in LEAVES if one.name == name]
    before, _, after = _full_help(command, monkeypatch, capsys).partition("─ Advanced ─")
    assert all(option in before for option in ("--model", "--epochs", "--out", "--help"))
    assert not any(option in before for option in ("--window ", "--warmup", "--gate-init"))
    panel = after.split("╰")[0]
    texts = [line.rsplit(">  ", 1)[-1] for line in panel.splitlines() if line.count(">  ") == 1]
    assert len(texts) > 5
    assert min(map(len, texts)) >= 33


def _full_help(command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    command.main(["--help-all"], standalone_mode=False)
    return capsys.readouterr().out


def test_a_default_without_options_is_the_configurations() -> None:
    def command(
        *, w2v: W2VConfig, expand: Annotated[ExpandConfig, Pick(without=("min_count",))], memory: MemoryConfig
    ) -> None:
        made.extend((w2v, expand, memory))

    made: list[Any] = []
    assert _call(command) is None
    assert made == [W2VConfig(), ExpandConfig(), MemoryConfig()]


def test_values_become_the_configurations() -> None:
    def command(*, align: AlignConfig, run: RunConfig, memory: Callable[..., MemoryConfig], w2v: W2VConfig) -> None:
        made.extend((align, run, memory(project=True), w2v))

    made: list[Any] = []
    _call(
        command,
        *("--method", "ridge", "--seed", "3", "--max-cache", "1K", "--report-to", "a", "--report-to", "b"),
        *("--memory-layers", "6,12", "--unfreeze-memory", "--cbow-sum"),
    )
    assert made == [
        AlignConfig("ridge", seed=3),
        RunConfig(max_cache=1024, report_to=("a", "b")),
        MemoryConfig(layers=(6, 12), frozen=False, project=True),
        W2VConfig(seed=3, cbow_mean=False),
    ]


def test_a_command_picks_fields_and_its_own_defaults() -> None:
    def command(*, w2v: Annotated[W2VConfig, Pick("epochs", "alpha", epochs=7)]) -> None:
        made.append(w2v)

    made: list[Any] = []
    _call(command)
    assert made == [W2VConfig(epochs=7)]
    with pytest.raises(UsageError, match="must be above 0"):
        _call(command, "--alpha", "-1")


def _call(command: Callable[..., None], *words: str) -> Any:
    own = typer.Typer()
    own.command()(with_options(command))
    return typer.main.get_command(own).main([*words], standalone_mode=False)


def test_a_wrong_value_is_one_line_with_the_option_the_value_and_what_is_allowed(run_alone: Run) -> None:
    for options, message in (
        (
            ("align", "--method", "typo"),
            "--method is 'typo', must be one of lstsq, procrustes, ridge, identity, random",
        ),
        (("expand", "--rows", "typo"), "--rows is 'typo', must be one of map, norm, pieces, blend"),
        (("w2v", "--epochs", "three"), "--epochs is 'three', must be a whole number, at least 1"),
        (("w2v", "--alpha", "inf"), "--alpha is inf, must be a finite number, above 0"),
        (("expand", "--rows", "blend", "--blend", 2), "--blend is 2.0, must be from 0 to 1"),
        (("finetune", "--adapter", "pal"), "--adapter is 'pal', must be one of pals, low-rank"),
    ):
        assert last_line(run_alone(*options, code=2)).startswith(f"greenadapt: {message}")


def test_every_field_of_a_configuration_with_an_option_has_one_name() -> None:
    configs = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Checked)]
    for config in configs:
        if config is not Checked:
            known = option_fields(config)
            assert known.keys() <= {field.name for field in fields(config)}
            assert len({field.option_name for field in known.values()}) == len(known)
