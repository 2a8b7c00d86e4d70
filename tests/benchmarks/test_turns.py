"""``benchmarks/turns.py``: who makes which step when, and what the columns say."""

import itertools
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.conftest import benchmark_module


@pytest.fixture(scope="module")
def turns() -> ModuleType:
    return benchmark_module("turns")


def test_sides_take_turns_on_the_same_steps(turns: ModuleType) -> None:
    order: list[str] = []

    def side(name: str) -> Iterator[int]:
        for number in itertools.count():
            order.append(name)
            yield number

    times = turns.timed({"a": side("a"), "b": side("b")}, 2)
    n_steps = turns.WARM_UP + 2
    assert times.made == {"a": [*range(n_steps)], "b": [*range(n_steps)]}
    assert [len(seconds) for seconds in times.seconds.values()] == [2, 2]
    assert order[:8] == ["a", "a", "b", "b", "b", "b", "a", "a"]


def test_ratios_are_of_medians_and_of_each_step(turns: ModuleType) -> None:
    first = [1.0, 2.0, 4.0, 0.5, 3.0]
    assert turns.ratios(first, first, None).split() == ["1.000", "1.000", "(1.000–1.000)"]
    assert turns.ratios([1.5, 2.0, 8.0, 1.0, 6.0], first, 1.6).split() == ["1.000", "2.000", "(1.500–2.000)", "1.60"]
    assert len(turns.ratios(first, first, None)) == len(turns.ratios(first, first, 1.6)) == len(turns.HEADINGS)
