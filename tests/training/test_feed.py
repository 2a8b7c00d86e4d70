"""What steps are made of: passes of each task, fresh orders, the mixture, and steps an epoch."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from greenadapt.config import Mix, RunConfig, SamplingConfig, TrainConfig
from greenadapt.models.rows import Rows
from greenadapt.tasks.base import Feature, Input
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Draw, Feed, Plan, draw_pass, random_bits

TEXTS = "SequenceClassification"
SIZES = {"a": 11, "b": 4, "c": 11}


def _dataset(n_items: int, task: str | None = None, n_examples: int = 0) -> TaskDataset:
    def view(i: int) -> list[Feature]:
        ids, zeros = np.full(5, 5 + i, np.int32), np.zeros(5, np.int32)
        return [Feature(ids, zeros, np.zeros(1, np.int32), np.array(i % 2))]

    dataset = TaskDataset.of([Input(view(i), view(i), 1) for i in range(n_items)], Rows.all(400), TEXTS, 0)
    return replace(dataset, task=task, n_examples=n_examples)


def _plan(seed: int, **train: Any) -> Plan:
    return Plan(TrainConfig(**{"epochs": 3, "batch_size": 4, **train}), RunConfig(), seed)


def _feed(sampling: SamplingConfig | None = None, seed: int = 1, sizes: Any = None, **train: Any) -> Feed:
    datasets = [_dataset(n, name, n) for name, n in (sizes or SIZES).items()]
    return Feed(datasets, _plan(seed, **train), sampling or SamplingConfig())


def _draws(feed: Any, task: str | None = None) -> list[Draw]:
    drawn = map(feed.draw, range(feed.n_steps))
    return [draw for draw in drawn if task in (None, draw.dataset.task)]


def test_one_dataset_is_gone_through_once_an_epoch() -> None:
    feed = Feed([_dataset(11)], _plan(5))
    assert (feed.steps_an_epoch, feed.n_steps) == (3, 9)
    for epoch in range(3):
        items, expanded = draw_pass(11, "sample", 4, 5, epoch)
        drawn = [feed.draw(3 * epoch + k) for k in range(3)]
        assert [len(draw.items) for draw in drawn] == [4, 4, 3]
        assert np.concatenate([draw.items for draw in drawn]).tolist() == items.tolist()
        assert np.concatenate([draw.expanded for draw in drawn]).tolist() == expanded.tolist()
        assert {(draw.n_passes, draw.dataset.task) for draw in drawn} == {(epoch, None)}


def test_examples_decide_and_not_the_parts_that_they_have() -> None:
    datasets = [_dataset(4, "a", 90), _dataset(40, "b", 10)]
    feed = Feed(datasets, _plan(1, epochs=1), SamplingConfig("proportional", 1000))
    assert np.bincount(feed.schedule) / 1000 == pytest.approx([0.9, 0.1], abs=0.04)


def test_every_pass_over_a_task_has_all_of_it_in_a_new_order() -> None:
    feed = _feed(SamplingConfig("anneal", 40))
    for task, n in SIZES.items():
        n_batches = -(-n // 4)
        drawn = _draws(feed, task)
        passes = [drawn[i : i + n_batches] for i in range(0, len(drawn) // n_batches * n_batches, n_batches)]
        assert len(passes) > 5
        orders = []
        for number, draws in enumerate(passes):
            assert {draw.n_passes for draw in draws} == {number}
            order = np.concatenate([draw.items for draw in draws])
            assert sorted(order.tolist()) == list(range(n))
            orders.append(tuple(order.tolist()))
        assert orders[0] != orders[1]
        assert len({*orders}) == len(orders) or (n == 4 and len({*orders}) > 12)  # which has 24 orders
        assert len({draw.expanded.tobytes() for draw in drawn}) > 1


def test_annealing_ends_with_the_last_step_also_where_steps_are_limited() -> None:
    sizes = {"large": 390, "small": 10}
    config = SamplingConfig("anneal", steps_per_epoch=500)
    whole, cut = (_feed(config, sizes=sizes, **train) for train in ({"epochs": 3}, {"epochs": 9, "max_steps": 1500}))
    assert cut.schedule.tolist() == whole.schedule.tolist()
    shares = cut.schedule.reshape(3, 500).mean(axis=1)
    for share, power in zip(shares, (1, 0.6, 0.2), strict=True):
        assert abs(share - 10**power / (10**power + 390**power)) < 0.07


def test_random_bits_are_numpys_philox() -> None:
    expected = np.random.Philox(np.random.SeedSequence([3, 1, 4])).random_raw(5)
    assert random_bits(5, 3, 1, 4).tolist() == expected.tolist()
    assert random_bits(9, 3, 1, 4)[:5].tolist() == expected.tolist()


@pytest.mark.parametrize("mix", ["sample", "batch", "both"])
def test_a_pass_has_every_item(mix: Mix) -> None:
    items, expanded = draw_pass(50, mix, 8, seed=3, n_passes=1)
    times = 2 if mix == "both" else 1
    assert sorted(items.tolist()) == sorted([*range(50)] * times)
    if mix == "both":
        assert len(set(zip(items.tolist(), expanded.tolist(), strict=True))) == 100
    if mix == "batch":
        assert all(len(set(expanded[i : i + 8].tolist())) == 1 for i in range(0, 50, 8))
    assert draw_pass(50, mix, 8, seed=3, n_passes=2)[0].tolist() != items.tolist()
    assert draw_pass(50, mix, 8, seed=4, n_passes=1)[0].tolist() != items.tolist()


def test_sample_tosses_a_fair_coin_in_each_pass() -> None:
    n = 20_000

    def coins(mix: Mix, n_passes: int) -> np.ndarray:
        items, expanded = draw_pass(n, mix, 16, 0, n_passes)
        return expanded[np.argsort(items)]

    passes = [coins("sample", number) for number in range(3)]
    for drawn in passes:
        assert abs(drawn.sum() - n / 2) < 4 * np.sqrt(n / 4)
    for first, second in combinations(passes, 2):
        assert abs((first & second).sum() - n / 4) < 4 * np.sqrt(n * 3 / 16)
    assert coins("fixed", 0).tolist() == coins("fixed", 1).tolist()
