from pathlib import Path

import numpy as np
import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.tasks.base import Encoder
from greenadapt.training.masking import Masking
from tests.support.small_tasks import TinyModel, adapted

PIECES = np.arange(10, 60, dtype=np.int32)  # of 100 old rows; added ones lie above
MASK = 3


def masking(share: float = 0.15, *, whole_words: bool = False) -> Masking:
    return Masking(share, whole_words, MASK, PIECES)


def ordinary(n: int) -> tuple[np.ndarray, np.ndarray]:
    """[CLS], ``n`` words of a piece, [SEP]."""
    ids = np.concatenate([[1], 10 + np.arange(n) % 50, [2]]).astype(np.int32)
    return ids, np.ones(len(ids), bool)


@pytest.mark.slow
@pytest.mark.parametrize("whole_words", [False, True])
def test_shares(whole_words: bool) -> None:
    ids, begins = ordinary(41)  # 15 % are 6.15
    made = [masking(whole_words=whole_words).corrupt(ids, begins, 1, 4, 0, i) for i in range(4000)]
    counts = np.array([len(one.places) for one in made])
    assert set(counts.tolist()) == {6, 7}
    assert counts.mean() == pytest.approx(0.15 * 41, abs=0.03)
    read = np.concatenate([one.ids[one.places] for one in made])
    targets = np.concatenate([one.targets for one in made])
    n = len(read)
    is_mask, same = read == MASK, read == targets
    # A random piece is the same as the target in one of 50 cases.
    assert is_mask.sum() / n == pytest.approx(0.8, abs=0.01)
    assert same.sum() / n == pytest.approx(0.1 + 0.1 / 50, abs=0.008)
    random = read[~is_mask & ~same]
    assert np.isin(random, PIECES).all()
    assert len(np.unique(random)) == 50
    assert np.bincount(random, minlength=60)[10:].std() / (len(random) / 50) < 0.2
    # Every place is as likely as any other.
    at = np.bincount(np.concatenate([one.places for one in made]), minlength=43)
    assert at[[0, -1]].tolist() == [0, 0]
    assert np.abs(at[1:-1] / len(made) - 0.15).max() < 0.03


def test_what_is_never_a_target() -> None:
    ids = np.array([1, 20, 200, 21, 99, 3, 22, 2, 0], np.int32)  # added word, row without piece, [MASK] in the text
    seen = set()
    for i in range(300):
        made = masking(0.5).corrupt(ids, np.ones(len(ids), bool), 1, 4, 0, i)
        assert (made.ids[np.setdiff1d(np.arange(9), made.places)] == np.delete(ids, made.places)).all()
        np.testing.assert_array_equal(made.targets, ids[made.places])
        seen |= {*made.places.tolist()}
        assert len(made.places) in (1, 2)  # half of three
    assert seen == {1, 3, 6}


def test_short_inputs_may_have_none_and_the_mean_is_exact() -> None:
    ids, begins = ordinary(2)
    counts = [len(masking().corrupt(ids, begins, 1, 4, 0, i).places) for i in range(5000)]
    assert set(counts) == {0, 1}
    assert np.mean(counts) == pytest.approx(0.3, abs=0.02)
    nothing = masking().corrupt(np.array([1, 200, 2], np.int32), np.ones(3, bool), 1, 4, 0, 0)
    assert len(nothing.places) == len(nothing.targets) == 0
    assert nothing.ids.tolist() == [1, 200, 2]


def test_whole_words() -> None:
    sizes = [1, 3, 2, 4, 1, 5, 2, 2]
    begins = np.concatenate([[True], *([True] + [False] * (size - 1) for size in sizes), [True]])
    ids = np.concatenate([[1], 10 + np.arange(sum(sizes)), [2]]).astype(np.int32)
    words = np.cumsum(begins) - 1
    chosen = np.zeros(len(sizes) + 2)
    for i in range(500):
        places = masking(0.25, whole_words=True).corrupt(ids, begins, 1, 4, 0, i).places
        taken = np.unique(words[places])
        assert np.isin(words, taken).sum() == len(places)
        room = 5 - len(places)  # a quarter of 20, and no word that is left would fit
        assert 0 <= room < min(size for word, size in enumerate(sizes, start=1) if word not in taken)
        chosen[taken] += 1
    assert chosen[[0, -1]].tolist() == [0, 0]
    assert (chosen[1:-1] > 0).all()
    # An added word between two others belongs to neither, and is read as it is.
    few = np.array([1, 20, 21, 200, 22, 2], np.int32)
    few_begins = np.array([True, True, False, True, True, True])
    draws = [masking(2 / 3, whole_words=True).corrupt(few, few_begins, 1, 4, 0, i) for i in range(60)]
    assert {tuple(made.places.tolist()) for made in draws} == {(1, 2), (4,)}
    assert {int(made.ids[3]) for made in draws} == {200}


def test_a_draw_is_a_function_of_its_key() -> None:
    ids, begins = ordinary(60)
    one, again, other = (masking().corrupt(ids, begins, 1, 4, epoch, 17) for epoch in (3, 3, 4))
    np.testing.assert_array_equal(one.ids, again.ids)
    np.testing.assert_array_equal(one.places, again.places)
    assert one.places.tolist() != other.places.tolist()
    assert ids.tolist() == ordinary(60)[0].tolist()  # the input itself stays


def test_of_a_tokenizer(tiny_model: TinyModel, tmp_path: Path) -> None:
    encoder = Encoder.of(Checkpoint.open(adapted(tiny_model)))
    made = Masking.of(encoder.tokenizer, 0.15, whole_words=False)
    special, vocabulary = encoder.special, encoder.tokenizer.base.get_vocab()
    assert made.mask_id == vocabulary["[MASK]"] == special.mask
    ids = {special.cls, special.sep, special.pad, special.unk, special.mask}
    assert set(made.pieces.tolist()) == set(vocabulary.values()) - ids
    assert made.pieces.max() < encoder.tokenizer.added.first_id
    assert (np.diff(made.pieces) > 0).all()
