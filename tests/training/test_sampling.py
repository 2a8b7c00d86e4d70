"""How often and in which order tasks are drawn, against the paper's numbers and by chi-square."""

from collections.abc import Sequence

import numpy as np
import pytest

from greenadapt.config import Sampling, SamplingConfig
from greenadapt.training.feed import exponent, probabilities, schedule

# CoLA, MRPC, MNLI, RTE, STS, SST, QQP, QNLI, as the paper's released code has them.
GLUE = (6680, 2865, 306798, 1945, 4491, 52616, 284257, 84715)
MNLI, RTE = 2, 3
DRAWN: list[Sampling] = ["proportional", "square-root", "anneal"]


def _schedule(
    sampling: Sampling, sizes: Sequence[int] = GLUE, n_steps: int = 8000, epochs: int = 1, seed: int = 1
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    steps_an_epoch = -(-n_steps // epochs)
    return schedule(sizes, SamplingConfig(sampling=sampling), steps_an_epoch, n_steps, epochs, seed)


def test_the_exponent_falls_from_1_to_a_fifth() -> None:
    assert exponent("anneal", 1, 25) == 1.0
    assert exponent("anneal", 13, 25) == pytest.approx(0.6)
    assert exponent("anneal", 25, 25) == pytest.approx(0.2)
    assert exponent("anneal", 1, 1) == 1.0
    falls = [exponent("anneal", epoch, 25) for epoch in range(1, 26)]
    assert np.diff(falls) == pytest.approx([-0.8 / 24] * 24)
    assert {exponent("proportional", epoch, 25) for epoch in (1, 13, 25)} == {1.0}
    assert {exponent("square-root", epoch, 25) for epoch in (1, 13, 25)} == {0.5}


@pytest.mark.parametrize(("a", "mnli", "rte"), [(1.0, 0.4122, 0.0026), (0.5, 0.2988, 0.0238), (0.2, 0.1956, 0.0711)])
def test_glue_is_drawn_as_in_the_paper(a: float, mnli: float, rte: float) -> None:
    shares = probabilities(GLUE, a)
    assert shares[[MNLI, RTE]].round(4).tolist() == [mnli, rte]
    assert shares.sum() == pytest.approx(1)


def test_round_robin_goes_on_in_a_cycle_whatever_the_seed_and_the_sizes() -> None:
    for seed in range(3):
        assert _schedule("round-robin", (5, 1, 70), 7, seed=seed).tolist() == [0, 1, 2, 0, 1, 2, 0]
        assert _schedule("round-robin", (5, 1, 70), 7, epochs=3, seed=seed).tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("sampling", DRAWN)
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
