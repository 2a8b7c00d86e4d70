"""What steps are made of: passes of each task, fresh orders, the mixture, and steps an epoch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from greenadapt.config import Mix, RunConfig, SamplingConfig, TrainConfig
from greenadapt.models.rows import Rows
from greenadapt.tasks.base import Feature, Input
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Draw, Feed, Plan, Purpose, choose, epoch_order, random_bits, task_seed

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


def _many(sampling: SamplingConfig | None = None, seed: int = 1, sizes: Any = None, **train: Any) -> Feed:
    datasets = [_dataset(n, name, n) for name, n in (sizes or SIZES).items()]
    return Feed(datasets, _plan(seed, **train), sampling or SamplingConfig())


def _draws(feed: Any, task: str | None = None) -> list[Draw]:
    drawn = [feed.draw(done) for done in range(feed.n_steps)]
    return [each for each in drawn if each.dataset.task == task] if task else drawn


def test_one_dataset_is_gone_through_once_an_epoch() -> None:
    feed = Feed([_dataset(11)], _plan(5))
    assert (feed.steps_an_epoch, feed.n_steps) == (3, 9)
    for epoch in range(3):
        items, expanded = epoch_order(11, "sample", 4, 5, epoch)
        drawn = [feed.draw(3 * epoch + k) for k in range(3)]
        assert [len(each.items) for each in drawn] == [4, 4, 3]
        assert np.concatenate([each.items for each in drawn]).tolist() == items.tolist()
        assert np.concatenate([each.expanded for each in drawn]).tolist() == expanded.tolist()
        assert {(each.epoch, each.dataset.task) for each in drawn} == {(epoch, None)}


@pytest.mark.parametrize("build", [_many, lambda **train: Feed([_dataset(11)], _plan(1, **train))])
def test_steps_can_be_asked_for_in_any_order(build: Callable[..., Any]) -> None:
    feed, again = build(), build()
    forward = [again.draw(done) for done in range(again.n_steps)]
    for done in reversed(range(feed.n_steps)):
        one, other = feed.draw(done), forward[done]
        assert (one.dataset.task, one.epoch, one.items.tolist()) == (
            other.dataset.task,
            other.epoch,
            other.items.tolist(),
        )
        assert one.expanded.tolist() == other.expanded.tolist()


@pytest.mark.parametrize(("mix", "steps"), [("sample", 3 + 1 + 3), ("both", 6 + 2 + 6)])
def test_an_epoch_has_as_many_steps_as_all_passes(mix: Mix, steps: int) -> None:
    feed = _many(mix=mix)
    assert (feed.steps_an_epoch, feed.n_steps) == (steps, 3 * steps)
    assert _many(mix=mix, max_steps=5).n_steps == 5
    chosen = _many(SamplingConfig(steps_per_epoch=100), mix=mix)
    assert (chosen.steps_an_epoch, chosen.n_steps) == (100, 300)


def test_examples_decide_and_not_the_parts_that_they_have() -> None:
    datasets = [_dataset(4, "a", 90), _dataset(40, "b", 10)]
    feed = Feed(datasets, _plan(1, epochs=1), SamplingConfig("proportional", 1000))
    assert np.bincount(feed.schedule) / 1000 == pytest.approx([0.9, 0.1], abs=0.04)


@pytest.mark.parametrize("sampling", ["round-robin", "anneal"])
def test_every_pass_over_a_task_has_all_of_it_in_a_new_order(sampling: Any) -> None:
    feed = _many(SamplingConfig(sampling, 40))
    for task, n in SIZES.items():
        n_batches = -(-n // 4)
        drawn = _draws(feed, task)
        passes = [drawn[i : i + n_batches] for i in range(0, len(drawn) // n_batches * n_batches, n_batches)]
        assert len(passes) > 5
        orders = []
        for number, each in enumerate(passes):
            assert {one.epoch for one in each} == {number}
            order = np.concatenate([one.items for one in each])
            assert sorted(order.tolist()) == list(range(n))
            orders.append(tuple(order.tolist()))
        assert orders[0] != orders[1]
        assert len({*orders}) == len(orders) or (n == 4 and len({*orders}) > 12)  # which has 24 orders
        assert len({one.expanded.tobytes() for each in passes for one in each}) > 1


def test_tasks_of_one_size_have_orders_and_coins_of_their_own() -> None:
    feed = _many(SamplingConfig("round-robin"))
    for part in ("items", "expanded"):
        a, c = ([getattr(each, part).tolist() for each in _draws(feed, task)] for task in ("a", "c"))
        assert a[:3] != c[:3]


def test_fixed_coins_are_a_tasks_own_and_stay() -> None:
    feed = _many(SamplingConfig("round-robin", 60), mix="fixed")
    coins: dict[str, dict[int, bool]] = {}
    for each in _draws(feed):
        assert each.dataset.task is not None
        for item, is_expanded in zip(each.items.tolist(), each.expanded.tolist(), strict=True):
            assert coins.setdefault(each.dataset.task, {}).setdefault(item, is_expanded) == is_expanded
    assert coins["a"] != coins["c"]
    expected = choose("fixed", task_seed(1, "a"), 0, np.arange(11))
    assert [coins["a"][i] for i in range(11)] == expected.tolist()


def test_both_views_of_every_example_are_in_a_pass() -> None:
    drawn = _draws(_many(SamplingConfig("round-robin"), mix="both"), "b")[:2]
    read = {
        (item, is_expanded)
        for each in drawn
        for item, is_expanded in zip(each.items.tolist(), each.expanded.tolist(), strict=True)
    }
    assert read == {(item, view) for item in range(4) for view in (False, True)}


def test_a_tasks_passes_do_not_depend_on_the_other_tasks() -> None:
    alone = _draws(_many(SamplingConfig("round-robin"), sizes={"b": 4}), "b")
    among = _draws(_many(SamplingConfig("round-robin", 30)), "b")
    for one, other in zip(alone, among, strict=False):
        assert one.items.tolist() == other.items.tolist()
        assert one.expanded.tolist() == other.expanded.tolist()


def test_round_robin_takes_the_tasks_in_turn_under_every_seed() -> None:
    for seed in (1, 2):
        feed = _many(SamplingConfig("round-robin"), seed)
        assert [each.dataset.task for each in _draws(feed)][:7] == ["a", "b", "c", "a", "b", "c", "a"]
    orders = [_draws(_many(SamplingConfig("round-robin"), seed), "a")[0].items.tolist() for seed in (1, 2)]
    assert orders[0] != orders[1]


def test_annealing_ends_with_the_last_step_also_where_steps_are_limited() -> None:
    sizes = {"large": 390, "small": 10}
    config = SamplingConfig("anneal", steps_per_epoch=500)
    whole, cut = (_many(config, sizes=sizes, **train) for train in ({"epochs": 3}, {"epochs": 9, "max_steps": 1500}))
    assert cut.schedule.tolist() == whole.schedule.tolist()
    shares = cut.schedule.reshape(3, 500).mean(axis=1)
    for share, power in zip(shares, (1, 0.6, 0.2), strict=True):
        assert abs(share - 10**power / (10**power + 390**power)) < 0.07


def test_seeds_of_tasks_differ() -> None:
    seeds = [
        task_seed(seed, name) for seed in (0, 1, 2**32 - 1) for name in ("a", "b", "ab", "ba", "a-b", "aa", "aaaaa")
    ]
    assert len({*seeds}) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_all_that_is_trained_on_is_told() -> None:
    def told(feed: Any) -> tuple[str, bytes]:
        content = bytearray()
        feed.digest(content.extend)
        return repr(feed.facts), bytes(content)

    same = [told(_many()), told(_many())]
    assert same[0] == same[1]
    others = [
        _many(SamplingConfig("square-root")),
        _many(SamplingConfig(steps_per_epoch=8)),
        _many(sizes={"b": 4, "a": 11, "c": 11}),
        _many(sizes={"a": 11, "b": 4, "d": 11}),
        _many(sizes={"a": 11, "b": 4, "c": 12}),
    ]
    assert all(told(other) != same[0] for other in others)


def test_random_bits_are_numpys_philox() -> None:
    expected = np.random.Philox(np.random.SeedSequence([3, 1, 4])).random_raw(5)
    assert random_bits(5, 3, 1, 4).tolist() == expected.tolist()
    assert random_bits(9, 3, 1, 4)[:5].tolist() == expected.tolist()


@pytest.mark.parametrize("mix", ["sample", "fixed", "batch"])
def test_a_choice_depends_on_its_index_alone(mix: Mix) -> None:
    whole = choose(mix, 7, 2, np.arange(100))
    some = np.array([93, 4, 4, 50])
    assert choose(mix, 7, 2, some).tolist() == whole[some].tolist()
    assert choose(mix, 8, 2, np.arange(100)).tolist() != whole.tolist()


def test_sample_is_a_fair_coin_anew_each_epoch() -> None:
    n = 20_000
    epochs = [choose("sample", 0, epoch, np.arange(n)) for epoch in range(3)]
    sigma = np.sqrt(n / 4)
    for drawn in epochs:
        assert abs(drawn.sum() - n / 2) < 4 * sigma
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs((epochs[one] & epochs[other]).sum() - n / 4) < 4 * np.sqrt(n * 3 / 16)


def test_fixed_is_the_same_coin_in_every_epoch() -> None:
    first = choose("fixed", 0, 0, np.arange(1000))
    assert choose("fixed", 0, 5, np.arange(1000)).tolist() == first.tolist()
    assert 400 < first.sum() < 600


def test_one_view_and_both() -> None:
    assert not choose("base", 0, 0, np.arange(4)).any()
    assert choose("expanded", 0, 0, np.arange(4)).all()
    assert choose("both", 0, 0, np.arange(4)).tolist() == [False, True, False, True]
    assert choose("sample", 0, 0, np.arange(0)).tolist() == []


def test_purposes_are_independent() -> None:
    drawn = [tuple(random_bits(4, 0, purpose, 0)) for purpose in Purpose]
    assert len(set(drawn)) == len(Purpose)
