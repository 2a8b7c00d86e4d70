import numpy as np
import pytest

from greenadapt.config import Mix
from greenadapt.training.feed import Purpose, choose, random_bits


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
