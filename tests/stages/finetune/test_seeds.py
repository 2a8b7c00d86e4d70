"""Which seeds are refused, and scores over the seeds, against numpy."""

import numpy as np
import pytest

from greenadapt.errors import UsageError
from greenadapt.stages.finetune.request import check_seeds, summary


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ((), "need at least one seed, without repetition"),
        ((1, 2, 1), "need at least one seed, without repetition"),
        ((-1,), "--seed is -1, must be from 0 to 4294967295"),
        ((0, 2**32), "--seed is 4294967296, must be from 0 to 4294967295"),
    ],
)
def test_seeds_that_are_refused(seeds: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_seeds(seeds)
    check_seeds((0, 2**32 - 1))


METRICS = {"a": "f1", "b": "by_class.x.f1"}


def test_mean_and_deviation_over_the_seeds() -> None:
    draw = np.random.default_rng(0)
    numbers = draw.uniform(size=(3, 4))  # seeds, scores
    finished = [
        {
            "seed": seed,
            "average": {"test": average},
            "tasks": {
                "a": {"test": {"m": {"f1": one, "em": 0.0}, "mm": {"f1": other}}},
                "b": {"test": {"test": {"by_class": {"x": {"f1": of_class}}}}},
            },
        }
        for seed, (one, other, of_class, average) in enumerate(numbers.tolist())
    ]
    made = summary("mean", METRICS, finished)
    tasks = made["tasks"]
    found = [tasks["a"]["test"]["m"], tasks["a"]["test"]["mm"], tasks["b"]["test"]["test"], made["average"]["test"]]
    assert [one["mean"] for one in found] == pytest.approx(numbers.mean(0).tolist(), rel=1e-12)
    assert [one["std"] for one in found] == pytest.approx(numbers.std(0, ddof=1).tolist(), rel=1e-12)
    assert (made["pool"], made["metrics"], made["seeds"]) == ("mean", METRICS, finished)
    alone = summary("mean", METRICS, finished[:1])
    assert alone["average"]["test"] == {"mean": numbers[0, 3]}  # one seed does not deviate


def test_a_score_that_a_seed_does_not_have() -> None:
    finished = [
        {"average": {"dev": average}, "tasks": {"a": {"dev": {"dev": scores}}}}
        for average, scores in ((0.5, {"f1": 0.5}), (None, {}))
    ]
    made = summary("base", METRICS, finished)
    nothing = {"mean": None, "std": None}
    assert (made["average"]["dev"], made["tasks"]["a"]["dev"]["dev"]) == (nothing, nothing)
