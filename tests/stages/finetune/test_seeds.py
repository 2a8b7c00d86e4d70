"""Which seeds are refused."""

import pytest

from greenadapt.errors import UsageError
from greenadapt.stages.finetune.seeds import check_seeds


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
