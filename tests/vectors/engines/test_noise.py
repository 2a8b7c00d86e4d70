"""How often words are kept and how often they are negatives: gensim's own tables, and the papers' formulas."""

import numpy as np
import pytest
from gensim.models import Word2Vec

from greenadapt.vectors.engines.noise import keep_thresholds, noise_weights

COUNTS = np.array([90_000, 20_000, 20_000, 700, 31, 5, 5, 1])


def plain_gensim(sample: float, exponent: float) -> Word2Vec:
    model = Word2Vec(vector_size=2, min_count=1, sample=sample, ns_exponent=exponent, sorted_vocab=0)
    model.build_vocab_from_freq({f"w{row}": count for row, count in enumerate(COUNTS.tolist())})
    return model


@pytest.mark.parametrize("exponent", [0.75, 1.0, 0.0, -0.5])
def test_negatives_are_as_frequent_as_gensims(exponent: float) -> None:
    weights = noise_weights(COUNTS, exponent)
    assert (weights.dtype, weights.shape) == (np.float64, COUNTS.shape)
    theirs = np.diff(plain_gensim(1e-3, exponent).cum_table.astype(np.float64), prepend=0) / (2**31 - 1)
    np.testing.assert_allclose(weights / weights.sum(), theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("sample", [1e-3, 1e-5, 0, 5])
def test_words_are_kept_as_by_gensim(sample: float) -> None:
    model = plain_gensim(sample, 0.75)
    theirs = [model.wv.get_vecattr(f"w{row}", "sample_int") for row in range(len(COUNTS))]
    assert keep_thresholds(COUNTS, sample).tolist() == theirs


def test_a_frequent_word_is_kept_by_word2vecs_rule() -> None:
    """√(t/c) + t/c of word2vec.c, at most 1, where t is the sample times all words."""
    share = keep_thresholds(COUNTS, 1e-3).astype(np.float64) / (2**32 - 1)
    relative = 1e-3 * COUNTS.sum() / COUNTS
    np.testing.assert_allclose(share, np.minimum(np.sqrt(relative) + relative, 1), atol=1e-9)
    assert share[0] < 0.04
    assert (share[4:] == 1).all()
