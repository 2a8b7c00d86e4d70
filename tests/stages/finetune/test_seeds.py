"""Training under several seeds: which are refused, and what a run that goes on trains."""

import json
from pathlib import Path
from typing import Any

import pytest

from greenadapt.errors import UsageError
from greenadapt.stages.finetune.seeds import check_seeds, train_seeds


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ((), "need at least one seed, and each once"),
        ((1, 2, 1), "need at least one seed, and each once"),
        ((-1,), "--seed is -1, must be from 0 to 4294967295"),
        ((0, 2**32), "--seed is 4294967296, must be from 0 to 4294967295"),
    ],
)
def test_seeds_that_are_refused(seeds: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_seeds(seeds)
    check_seeds((0, 2**32 - 1))


def test_what_is_finished_is_not_trained_again(tmp_path: Path) -> None:
    trained: list[tuple[int, list[int]]] = []

    def train(seed: int, folder: Path, finished: list[dict[str, Any]]) -> None:
        trained.append((seed, [one["seed"] for one in finished]))
        if seed == 9:
            raise KeyboardInterrupt
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps({"seed": seed}))

    with pytest.raises(KeyboardInterrupt):
        train_seeds((4, 7, 9), tmp_path, train, is_first=True)
    assert trained == [(4, []), (7, [4]), (9, [4, 7])]
    trained.clear()
    assert train_seeds((4, 7, 2), tmp_path, train, is_first=True) == [{"seed": 4}, {"seed": 7}, {"seed": 2}]
    assert trained == [(2, [4, 7])]
