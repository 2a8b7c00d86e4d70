"""Outputs of several tasks together, against those of each task alone."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig
from greenadapt.models.adapters.multitask import MultitaskModel, TaskHeadSpec, open_multitask
from greenadapt.models.forward import TorchRunner, outputs
from greenadapt.models.rows import RowMap, Rows
from greenadapt.models.streaming import Inference, ViewOutputs, stream_tasks
from greenadapt.tasks.base import Feature, Input
from tests.support.small_inputs import ROUNDING
from tests.support.small_tasks import TinyModel

TASKS = {
    "words": ("TokenClassification", 5),
    "texts": ("SequenceClassification", 3),
    "value": ("SequenceClassification", 1),
}
Examples = list[dict[str, Input]]


class Shared:
    """A tiny model with three tasks, and random examples of them."""

    def __init__(self, tiny_model: TinyModel, adapter: AdapterConfig, architecture: str = "Bert") -> None:
        self.checkpoint = Checkpoint.open(tiny_model(f"{architecture}Model", initializer_range=0.3))
        self.adapter = adapter
        self.pad = int(self.checkpoint.config["pad_token_id"])
        self.rows = Rows.all(self.checkpoint.n_rows)
        self.model = self.opened(self.rows)
        self.random = np.random.default_rng(0)
        self.run = Inference(max_tokens=60, pad_id=self.pad)

    def opened(self, rows: Rows) -> MultitaskModel:
        heads = {name: TaskHeadSpec(*head, self.adapter) for name, head in TASKS.items()}
        return open_multitask(self.checkpoint, heads, rows, seed=1)

    def views(self, n_units: int = 4) -> Input:
        """The views of a head with an output a piece."""
        base, expanded = ([self._feature(n_units) for _ in range(self.random.integers(1, 3))] for _ in range(2))
        return Input(base, expanded, n_units)

    def _feature(self, n_units: int) -> Feature:
        n = int(self.random.integers(2, 20))
        ids = self.random.integers(5, self.checkpoint.n_rows, n).astype(np.int32)
        return Feature(ids, np.zeros(n, np.int32), self.random.integers(-1, n_units, n).astype(np.int32))

    def alone(self, examples: Examples, task: str, run: Inference) -> list[ViewOutputs]:
        return list(outputs(self.model, self.rows, [views[task] for views in examples], replace(run, task=task)))


def shared_outputs(
    model: MultitaskModel, rows: RowMap, examples: Iterable[dict[str, Input]], run: Inference
) -> Iterator[dict[str, ViewOutputs]]:
    return stream_tasks(TorchRunner(model, rows, is_shared=True), examples, run)


def of_text(views: Input) -> Input:
    """The same inputs for a head with an output a text."""
    base, expanded = (
        [replace(feature, units=np.zeros(1, np.int32)) for feature in view] for view in (views.base, views.expanded)
    )
    return Input(base, expanded, 1)


def same_inputs(shared: Shared, n: int) -> Examples:
    words = [shared.views() for _ in range(n)]
    return [{"words": views, "texts": of_text(views), "value": of_text(views)} for views in words]


def equal(got: list[ViewOutputs], expected: list[ViewOutputs], atol: float = 0) -> None:
    assert len(got) == len(expected)
    for output, reference in zip(got, expected, strict=True):
        for view in ("base", "expanded"):
            np.testing.assert_allclose(getattr(output, view), getattr(reference, view), rtol=0, atol=atol)


def seen(module: torch.nn.Module) -> list[int]:
    """How many inputs each call of a layer will have had."""
    sizes: list[int] = []
    module.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    return sizes


ADAPTERS = [
    AdapterConfig("pals", size=34, layers="top"),
    AdapterConfig("pals", size=34),
    AdapterConfig("none"),
    AdapterConfig("top-attention", size=34),
    AdapterConfig("houlsby", size=4),
]


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: f"{adapter.adapter}-{adapter.layers}")
def shared(request: pytest.FixtureRequest, tiny_model: TinyModel) -> Shared:
    return Shared(tiny_model, request.param)


@pytest.fixture
def top(tiny_model: TinyModel) -> Shared:
    return Shared(tiny_model, ADAPTERS[0])


def test_where_inputs_are_the_same_outputs_are_bit_identical(shared: Shared) -> None:
    examples = same_inputs(shared, 12)
    got = list(shared_outputs(shared.model, shared.rows, examples, shared.run))
    assert all(list(by_task) == list(TASKS) for by_task in got)
    alone = {task: shared.alone(examples, task, shared.run) for task in TASKS}
    for task, expected in alone.items():
        equal([by_task[task] for by_task in got], expected)
    assert alone["words"][0].base.shape == (4, 5)
    assert alone["texts"][0].base.shape == (1, 3)
    assert alone["value"][0].base.shape == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["Bert", "Roberta"])
@pytest.mark.parametrize("block_pieces", [1, 150, 1 << 20])
def test_tasks_that_read_other_inputs(tiny_model: TinyModel, architecture: str, block_pieces: int) -> None:
    """Some inputs are those of one task alone, some of two, some of all."""
    shared = Shared(tiny_model, ADAPTERS[0], architecture)
    examples: Examples = []
    for number in range(24):
        words, second, third = (shared.views() for _ in range(3))
        texts = of_text(second if number % 3 == 0 else words)
        examples.append({"words": words, "texts": texts, "value": of_text(third) if number % 2 else texts})
    run = replace(shared.run, block_pieces=block_pieces)
    got = list(shared_outputs(shared.model, shared.rows, examples, run))
    for task in TASKS:
        equal([by_task[task] for by_task in got], shared.alone(examples, task, run), atol=ROUNDING)


def test_what_no_adapter_touches_is_computed_once(top: Shared) -> None:
    examples = same_inputs(top, 6)
    examples[5]["texts"] = of_text(top.views())
    words = {id(feature) for views in examples for feature in (*views["words"].base, *views["words"].expanded)}
    new = len(examples[5]["texts"].base) + len(examples[5]["texts"].expanded)
    replaced = len(examples[5]["words"].base) + len(examples[5]["words"].expanded)
    lower, upper = (seen(top.model.encoder.get_submodule(f"encoder.layer.{number}")) for number in (0, 1))
    list(shared_outputs(top.model, top.rows, examples, top.run))
    assert sum(lower) == len(words) + new
    assert sum(upper) == 3 * (len(words) - replaced) + 2 * replaced + new
    lower.clear()
    for task in TASKS:
        top.alone(examples, task, top.run)
    assert sum(lower) == 3 * len(words) - replaced + new


def test_a_block_is_as_large_as_that_of_the_task_which_reads_most(top: Shared) -> None:
    """So that tasks together are read in the blocks that each would be read in alone."""
    taken = 0

    def count(examples: Examples) -> Any:
        nonlocal taken
        for example in examples:
            taken += 1
            yield example

    examples = same_inputs(top, 60)
    run = replace(top.run, block_pieces=100)
    counts = []
    for number, _ in enumerate(shared_outputs(top.model, top.rows, count(examples), run), start=1):
        counts.append(taken - number)
    assert 0 < max(counts) < 30  # a block, and the one that is read ahead


def test_examples_without_inputs(top: Shared) -> None:
    assert list(shared_outputs(top.model, top.rows, [], top.run)) == []
    empty, text = Input([], [], 0), of_text(top.views())
    examples = [{"words": empty, "texts": text, "value": text}, *same_inputs(top, 1)]
    first, _ = shared_outputs(top.model, top.rows, examples, top.run)
    assert len(first["words"].base) == 0
    assert first["texts"].base.shape == (1, 3)
