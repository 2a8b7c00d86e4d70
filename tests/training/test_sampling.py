"""The tasks of the steps, as often as the paper draws them, and passes over each in fresh orders and mixtures."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from greenadapt.config import Mix, Sampling, SamplingConfig, TrainConfig
from greenadapt.models.rows import Rows
from greenadapt.tasks.base import Feature, Item
from greenadapt.training.batches import TaskDataset
from greenadapt.training.sampling import BatchSampler, SampledBatch, draw_pass, exponent, probabilities, schedule

TEXTS = "SequenceClassification"
SIZES = {"a": 11, "b": 4, "c": 11}


def _dataset(n_items: int, task: str | None = None, n_examples: int = 0) -> TaskDataset:
    def view(i: int) -> list[Feature]:
        ids, zeros = np.full(5, 5 + i, np.int32), np.zeros(5, np.int32)
        return [Feature(ids, zeros, np.zeros(1, np.int32), np.array(i % 2))]

    dataset = TaskDataset.of([Item(view(i), view(i), 1) for i in range(n_items)], Rows.all(400), TEXTS, 0)
    return replace(dataset, task=task, n_examples=n_examples)


def _train(**changes: Any) -> TrainConfig:
    return TrainConfig(**{"epochs": 3, "batch_size": 4, **changes})


def _sampler(sampling: SamplingConfig | None = None, seed: int = 1, sizes: Any = None, **train: Any) -> BatchSampler:
    datasets = [_dataset(n, name, n) for name, n in (sizes or SIZES).items()]
    return BatchSampler(datasets, _train(**train), seed, sampling or SamplingConfig())


def _draws(sampler: Any, task: str | None = None) -> list[SampledBatch]:
    drawn = map(sampler.draw, range(sampler.n_steps))
    return [draw for draw in drawn if task in (None, draw.dataset.task)]


def test_one_dataset_is_gone_through_once_an_epoch() -> None:
    sampler = BatchSampler([_dataset(11)], _train(), 5)
    assert (sampler.steps_per_epoch, sampler.n_steps) == (3, 9)
    for epoch in range(3):
        items, expanded = draw_pass(11, "sample", 4, 5, epoch)
        drawn = [sampler.draw(3 * epoch + k) for k in range(3)]
        assert [len(draw.items) for draw in drawn] == [4, 4, 3]
        assert np.concatenate([draw.items for draw in drawn]).tolist() == items.tolist()
        assert np.concatenate([draw.expanded for draw in drawn]).tolist() == expanded.tolist()
        assert {(draw.n_passes, draw.dataset.task) for draw in drawn} == {(epoch, None)}


def test_examples_decide_and_not_the_parts_that_they_have() -> None:
    datasets = [_dataset(4, "a", 90), _dataset(40, "b", 10)]
    sampler = BatchSampler(datasets, _train(epochs=1), 1, SamplingConfig("proportional", 1000))
    assert np.bincount(sampler.schedule) / 1000 == pytest.approx([0.9, 0.1], abs=0.04)


def test_every_pass_over_a_task_has_all_of_it_in_a_new_order() -> None:
    sampler = _sampler(SamplingConfig("anneal", 40))
    for task, n in SIZES.items():
        n_batches = -(-n // 4)
        drawn = _draws(sampler, task)
        passes = [drawn[i : i + n_batches] for i in range(0, len(drawn) // n_batches * n_batches, n_batches)]
        assert len(passes) > 5
        orders = []
        for number, draws in enumerate(passes):
            assert {draw.n_passes for draw in draws} == {number}
            order = np.concatenate([draw.items for draw in draws])
            assert sorted(order.tolist()) == list(range(n))
            orders.append(tuple(order.tolist()))
        assert orders[0] != orders[1]


def test_annealing_ends_with_the_last_step_also_where_steps_are_limited() -> None:
    sizes = {"large": 390, "small": 10}
    config = SamplingConfig("anneal", steps_per_epoch=500)
    whole, cut = (_sampler(config, sizes=sizes, **train) for train in ({"epochs": 3}, {"epochs": 9, "max_steps": 1500}))
    assert cut.schedule.tolist() == whole.schedule.tolist()
    shares = cut.schedule.reshape(3, 500).mean(axis=1)
    for share, power in zip(shares, (1, 0.6, 0.2), strict=True):
        assert abs(share - 10**power / (10**power + 390**power)) < 0.07


@pytest.mark.parametrize("mix", ["batch", "both"])
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


# CoLA, MRPC, MNLI, RTE, STS, SST, QQP, QNLI, as the paper's released code has them.
GLUE = (6680, 2865, 306798, 1945, 4491, 52616, 284257, 84715)
MNLI, RTE = 2, 3


def _schedule(sampling: Sampling, sizes: tuple[int, ...], n_steps: int, epochs: int = 1, seed: int = 1) -> np.ndarray:
    return schedule(sizes, SamplingConfig(sampling=sampling), -(-n_steps // epochs), n_steps, epochs, seed)


def test_the_exponent_falls_from_1_to_a_fifth() -> None:
    assert exponent("anneal", 1, 25) == 1.0
    assert exponent("anneal", 13, 25) == pytest.approx(0.6)
    assert exponent("anneal", 25, 25) == pytest.approx(0.2)
    assert exponent("anneal", 1, 1) == 1.0


@pytest.mark.parametrize(("a", "mnli", "rte"), [(1.0, 0.4122, 0.0026), (0.5, 0.2988, 0.0238), (0.2, 0.1956, 0.0711)])
def test_glue_is_drawn_as_in_the_paper(a: float, mnli: float, rte: float) -> None:
    shares = probabilities(GLUE, a)
    assert shares[[MNLI, RTE]].round(4).tolist() == [mnli, rte]
    assert shares.sum() == pytest.approx(1)


def test_round_robin_goes_on_in_a_cycle_whatever_the_seed_and_the_sizes() -> None:
    for seed in range(2):
        assert _schedule("round-robin", (5, 1, 70), 7, epochs=3, seed=seed).tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("sampling", ["proportional", "square-root", "anneal"])
def test_tasks_come_as_often_as_they_should(sampling: Sampling) -> None:
    """Pearson's chi-square of every epoch: with 3 degrees of freedom it is above 16.3 once in a thousand times."""
    sizes, epochs, steps = (100, 400, 50, 1000), 5, 20_000
    drawn = _schedule(sampling, sizes, epochs * steps, epochs).reshape(epochs, steps)
    for epoch, tasks in enumerate(drawn, start=1):
        a = {"proportional": 1.0, "square-root": 0.5, "anneal": [1.0, 0.8, 0.6, 0.4, 0.2][epoch - 1]}[sampling]
        weights = np.array([size**a for size in sizes])
        expected = steps * weights / weights.sum()
        counts = np.bincount(tasks, minlength=4)
        assert ((counts - expected) ** 2 / expected).sum() < 16.3
