"""Options that come from configuration classes, and the examples below each help."""

import shlex
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import typer

from greenadapt.cli.options import Pick, with_options
from greenadapt.cli.settings import commands_of
from greenadapt.config import AlignConfig, ExpandConfig, MemoryConfig, RunConfig, TaskConfig, W2VConfig
from greenadapt.errors import UsageError
from tests.conftest import Run, last_line
from tests.support.pages import GROUP

LEAVES = [*commands_of(GROUP).values()]


@pytest.mark.parametrize("command", LEAVES, ids=lambda command: command.name)
def test_every_help_ends_with_examples_that_can_be_typed(command: Any) -> None:
    lines = [line for line in command.epilog.split("\n\n") if line.startswith("- `greenadapt ")]
    assert lines
    for line in lines:
        _values(shlex.split(line.strip("-` "))[1:])


def _values(words: list[str]) -> dict[str, Any]:
    group: Any = GROUP
    context = typer.Context(group)
    while hasattr(group, "commands"):
        group = group.commands[words.pop(0)]
        context = typer.Context(group, info_name=group.name, parent=context)
    group.parse_args(context, words)
    return dict(context.params)


def test_a_default_without_options_is_the_configurations() -> None:
    def command(
        *, w2v: W2VConfig, expand: Annotated[ExpandConfig, Pick(without=("min_count",))], memory: MemoryConfig
    ) -> None:
        configs.extend((w2v, expand, memory))

    configs: list[Any] = []
    assert _call(command) is None
    assert configs == [W2VConfig(), ExpandConfig(), MemoryConfig()]


def test_values_become_the_configurations() -> None:
    def command(*, align: AlignConfig, run: RunConfig, memory: MemoryConfig, w2v: W2VConfig) -> None:
        configs.extend((align, run, memory, w2v))

    configs: list[Any] = []
    _call(
        command,
        *("--method", "procrustes", "--seed", "3", "--max-tokens", "1024"),
        *("--memory-layers", "6,12", "--unfreeze-memory", "--memory-project"),
    )
    assert configs == [
        AlignConfig("procrustes", seed=3),
        RunConfig(max_tokens=1024),
        MemoryConfig(layers=(6, 12), frozen=False, project=True),
        W2VConfig(seed=3),
    ]


def test_a_configuration_can_be_optional() -> None:
    def command(*, task: Annotated[TaskConfig | None, Pick("task", "chunk", task=None)]) -> None:
        configs.append(task)

    configs: list[Any] = []
    _call(command, "--chunk", "5")
    _call(command, "--task", "ner", "--chunk", "5")
    assert configs == [None, TaskConfig("ner", chunk=5)]


def test_a_command_picks_fields_and_its_own_defaults() -> None:
    def command(*, w2v: Annotated[W2VConfig, Pick("epochs", "alpha", epochs=7)]) -> None:
        configs.append(w2v)

    configs: list[Any] = []
    _call(command)
    assert configs == [W2VConfig(epochs=7)]
    with pytest.raises(UsageError, match="must be greater"):
        _call(command, "--alpha", "-1")


def _call(command: Callable[..., None], *words: str) -> Any:
    application = typer.Typer()
    application.command()(with_options(command))
    return typer.main.get_command(application).main([*words], standalone_mode=False)


def test_a_wrong_value_is_one_line_with_the_option_the_value_and_what_is_allowed(run_alone: Run) -> None:
    for options, message in (
        (("align", "--method", "typo"), "--method 'typo' is not one of 'lstsq', 'procrustes'"),
        (("expand", "--rows", "typo"), "--rows 'typo' is not one of 'map', 'norm'"),
        (("w2v", "--epochs", "three"), "--epochs is 'three': must be a valid integer"),
        (("w2v", "--alpha", "inf"), "--alpha is inf, must be a finite number"),
        (("finetune", "--adapter", "pal"), "--adapter 'pal' is not one of 'pals', 'low-rank'"),
    ):
        assert last_line(run_alone(*options, code=2)).startswith(f"greenadapt: {message}")
