"""Options that come from configuration classes, and the examples below each help."""

import shlex
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import typer

from greenadapt.cli.options import Pick, with_options
from greenadapt.cli.settings import commands_of
from greenadapt.config import AlignConfig, MemoryConfig, TaskConfig, W2VConfig
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


def test_values_become_the_configurations() -> None:
    """What is not given has the default of the configuration; options of one name are shared."""

    def command(
        *, align: AlignConfig, memory: MemoryConfig, w2v: Annotated[W2VConfig, Pick("epochs", "seed", epochs=7)]
    ) -> None:
        configs.extend((align, memory, w2v))

    configs: list[Any] = []
    _call(command)
    assert configs == [AlignConfig(), MemoryConfig(), W2VConfig(epochs=7)]
    configs.clear()
    options = "--method procrustes --seed 3 --memory-layers 6,12 --unfreeze-memory --memory-project"
    _call(command, *options.split())
    memory = MemoryConfig(layers=(6, 12), frozen=False, project=True)
    assert configs == [AlignConfig("procrustes", seed=3), memory, W2VConfig(epochs=7, seed=3)]


def test_a_configuration_can_be_optional() -> None:
    def command(*, task: Annotated[TaskConfig | None, Pick("task", "chunk", task=None)]) -> None:
        configs.append(task)

    configs: list[Any] = []
    _call(command, "--chunk", "5")
    _call(command, "--task", "ner", "--chunk", "5")
    assert configs == [None, TaskConfig("ner", chunk=5)]


def _call(command: Callable[..., None], *words: str) -> Any:
    application = typer.Typer()
    application.command()(with_options(command))
    return typer.main.get_command(application).main([*words], standalone_mode=False)
