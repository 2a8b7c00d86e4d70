"""Outputs by unit, in both views, against plain transformers on one input at a time."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import ResourceError
from greenadapt.models.forward import TorchRunner
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import Inference, ViewOutputs, pool_views, stream_task
from greenadapt.models.weights import open_model
from greenadapt.tasks.base import Feature, Item
from tests.support.small_inputs import ROUNDING
from tests.support.small_tasks import EVERY_HEAD, TinyModel

_WITH_TYPES = ("bert", "electra", "roberta", "xlm-roberta", "camembert", "albert", "ernie", "nomic_bert")


class Task:
    """A tiny model and random examples for it; ``example`` makes both views of one."""

    def __init__(self, tiny_model: TinyModel, architecture: str = "Bert", head: str = "TokenClassification") -> None:
        self.checkpoint = Checkpoint(tiny_model(f"{architecture}Model"))
        self.head = head
        self.pad = int(self.checkpoint.config["pad_token_id"])
        self.rows = Rows.all(self.checkpoint.n_rows)
        config: dict[str, Any] = {} if head == "QuestionAnswering" else {"num_labels": 3}
        self.model = open_model(self.checkpoint, head, config, self.rows, seed=1)
        self.random = np.random.default_rng(0)
        self.run = Inference(max_tokens=60, pad_id=self.pad)

    def outputs(self, examples: Iterable[Item], **settings: Any) -> Generator[ViewOutputs, None, None]:
        return stream_task(TorchRunner(self.model, self.rows), examples, replace(self.run, **settings))

    def feature(self, n_units: int) -> Feature:
        n = int(self.random.integers(1, 20))
        ids = self.random.integers(5, self.checkpoint.n_rows, n).astype(np.int32)
        types = np.sort(self.random.integers(0, 2, n)).astype(np.int32)
        if self.head == "SequenceClassification":
            return Feature(ids, types, np.zeros(1, np.int32))
        return Feature(ids, types, self.random.integers(-1, n_units, n).astype(np.int32))

    def example(self) -> Item:
        n_units = 1 if self.head == "SequenceClassification" else int(self.random.integers(1, 8))
        n_features = 1 if self.head == "SequenceClassification" else int(self.random.integers(1, 4))
        base, expanded = ([self.feature(n_units) for _ in range(n_features)] for _ in range(2))
        return Item(base, expanded, n_units)

    def alone(self, feature: Feature) -> np.ndarray:
        """One input through plain transformers: (n, k) or (1, k)."""
        inputs = {"input_ids": torch.from_numpy(feature.ids[None].astype(np.int64))}
        if self.checkpoint.architecture.model_type in _WITH_TYPES and self.model.config.type_vocab_size > 1:
            inputs["token_type_ids"] = torch.from_numpy(feature.types[None].astype(np.int64))
        with torch.no_grad():
            result = self.model(**inputs)
        if self.head == "QuestionAnswering":
            return torch.stack([result.start_logits[0], result.end_logits[0]], dim=-1).numpy()
        return result.logits.numpy() if self.head == "SequenceClassification" else result.logits[0].numpy()

    def view(self, features: list[Feature], n_units: int) -> np.ndarray:
        """The largest output of each unit, piece by piece."""
        rows = [self.alone(feature) for feature in features]
        expected = np.full((n_units, rows[0].shape[-1]), -np.inf, np.float32)
        for feature, row in zip(features, rows, strict=True):
            for unit, values in zip(feature.units.tolist(), row, strict=True):
                if unit >= 0:
                    expected[unit] = np.maximum(expected[unit], values)
        return expected


@pytest.fixture
def task(tiny_model: TinyModel) -> Task:
    return Task(tiny_model)


@pytest.mark.parametrize(("architecture", "head"), EVERY_HEAD)
def test_outputs_are_those_of_each_input_alone(tiny_model: TinyModel, architecture: str, head: str) -> None:
    task = Task(tiny_model, architecture, head)
    examples = [task.example() for _ in range(5)]
    got = list(task.outputs(examples))
    assert len(got) == len(examples)
    for example, output in zip(examples, got, strict=True):
        for features, array in ((example.base, output.base), (example.expanded, output.expanded)):
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, task.view(features, example.n_units), atol=ROUNDING, rtol=0)


def equal(got: list[ViewOutputs], expected: list[ViewOutputs]) -> None:
    for output, reference in zip(got, expected, strict=True):
        np.testing.assert_allclose(output.base, reference.base, atol=ROUNDING, rtol=0)
        np.testing.assert_allclose(output.expanded, reference.expanded, atol=ROUNDING, rtol=0)


@pytest.fixture(params=["in turn", "in the background"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is called by the thread that wants its outputs, and by another one, as on a GPU."""
    if request.param == "in the background":
        monkeypatch.setattr(TorchRunner, "is_background", True)


@pytest.mark.usefixtures("either_way")
def test_blocks_keep_the_order(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [task.example() for _ in range(20)]
    expected = list(task.outputs(examples))
    monkeypatch.setattr(TorchRunner, "block_pieces", 50)
    equal(list(task.outputs(examples)), expected)


@pytest.mark.usefixtures("either_way")
def test_examples_are_read_as_they_are_needed(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchRunner, "block_pieces", 200)
    read: list[int] = []

    def endless() -> Iterator[Item]:
        while True:
            example = task.example()
            read.append(sum(len(feature) for feature in (*example.base, *example.expanded)))
            yield example

    used: list[int] = []
    with closing(task.outputs(endless())) as stream:
        for i, _ in zip(range(30), stream, strict=False):
            used.append(read[i])
    block = 200 + max(read)
    # One block is used; one waits to go through the model and one is read, or in the background one more waits.
    assert sum(read) < sum(used) + 4 * block


def shapes_seen(task: Task) -> list[tuple[int, int]]:
    """The shape of every batch that goes through the model from now on."""
    shapes: list[tuple[int, int]] = []
    task.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    return shapes


def test_batches_have_at_most_so_many_pieces(task: Task) -> None:
    examples = [task.example() for _ in range(12)]
    n_inputs = sum(len(example.base) + len(example.expanded) for example in examples)
    shapes = shapes_seen(task)
    list(task.outputs(examples, max_tokens=25))
    assert sum(n for n, _ in shapes) == n_inputs
    assert all(n * width <= 25 or n == 1 for n, width in shapes)
    widths = [width for _, width in shapes]
    assert widths == sorted(widths, reverse=True)


def test_a_cpu_computes_what_its_caches_hold(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    shapes = shapes_seen(task)
    list(task.outputs([task.example() for _ in range(200)], max_tokens=1 << 20))
    assert len(shapes) > 1
    assert all(1024 < n * width <= 2048 for n, width in shapes[:-1])


def test_equal_inputs_are_computed_once(task: Task) -> None:
    different, equal = task.example(), [task.feature(3), task.feature(3)]
    copy = [Feature(f.ids.copy(), f.types.copy(), f.units.copy()) for f in equal]
    examples = [Item(equal, copy, 3), different, Item(equal, equal, 3)]
    shapes = shapes_seen(task)
    got = list(task.outputs(examples))
    assert sum(n for n, _ in shapes) == len(equal) + len(different.base) + len(different.expanded)
    for output in (got[0], got[2]):
        np.testing.assert_array_equal(output.base, output.expanded)
    ids, units = np.arange(9, 15, dtype=np.int32), np.zeros(6, np.int32)
    first, second = (Feature(ids, np.full(6, kind, np.int32), units) for kind in (0, 1))  # by their segments alone
    (output,) = task.outputs([Item([first], [second], 1)])
    assert np.abs(output.base - output.expanded).max() > 1e-3


@pytest.mark.parametrize(("pool", "missing"), [("base", "expanded"), ("expanded", "base")])
def test_only_the_view_that_is_wanted_is_computed(task: Task, pool: str, missing: str) -> None:
    examples = [task.example() for _ in range(5)]
    expected = list(task.outputs(examples))
    shapes = shapes_seen(task)
    single = list(task.outputs(examples, pool=pool))
    assert sum(n for n, _ in shapes) == sum(len(getattr(example, pool)) for example in examples)
    for output, reference in zip(single, expected, strict=True):
        assert getattr(output, missing) is None
        np.testing.assert_allclose(getattr(output, pool), getattr(reference, pool), atol=ROUNDING, rtol=0)
        with pytest.raises(ValueError, match="the mean needs a view that was not computed"):
            pool_views(output, "mean")


logits = arrays(np.float32, (3, 4), elements=st.floats(-50, 50, width=32))


@given(logits, logits)
def test_pooled_logits_are_the_mean(a: np.ndarray, b: np.ndarray) -> None:
    views = ViewOutputs(a, b)
    np.testing.assert_array_equal(pool_views(views, "mean"), (a + b) / 2)
    np.testing.assert_array_equal(pool_views(views, "base"), a)
    np.testing.assert_array_equal(pool_views(views, "expanded"), b)
    assert np.isneginf(pool_views(ViewOutputs(np.full_like(a, -np.inf), np.full_like(a, -np.inf)), "mean")).all()


def test_training_goes_on_undisturbed(task: Task) -> None:
    examples = [task.example() for _ in range(5)]
    expected = [output.base for output in task.outputs(examples)]
    task.model.train()
    torch.manual_seed(3)
    after = torch.rand(2)
    torch.manual_seed(3)
    got = [output.base for output in task.outputs(examples)]
    assert torch.equal(torch.rand(2), after)
    assert all(module.training for module in task.model.modules())
    for array, reference in zip(got, expected, strict=True):
        np.testing.assert_array_equal(array, reference)  # without dropout


def test_autocast(task: Task) -> None:
    examples = [task.example() for _ in range(5)]
    got, expected = (
        np.concatenate([output.base for output in task.outputs(examples, autocast=autocast)])
        for autocast in (lambda: torch.autocast("cpu", torch.bfloat16), nullcontext)
    )
    spoken = np.isfinite(expected)
    assert got.dtype == np.float32
    assert 0 < np.abs(got[spoken] - expected[spoken]).max() < 0.05


@pytest.mark.usefixtures("either_way")
def test_too_little_memory_names_the_option(task: Task) -> None:
    def fail(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError

    task.model.register_forward_pre_hook(fail)
    with pytest.raises(ResourceError, match=r"not fit into the GPU's memory: use a --max-tokens below \d\d"):
        list(task.outputs([task.example()]))
