"""Training that diverges ends with an error in either engine, and training that learns does not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from greenadapt.config import ResolvedEngine, W2VConfig
from greenadapt.errors import InputError
from greenadapt.vectors.engines import Stream, Weights, require_finite, require_learning, sample_lost
from tests.vectors.test_cbow import CONFIG, planted_text, prepare, train

ENGINES: list[ResolvedEngine] = ["gensim", "fast"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("alpha", [50, 100])
def test_a_rate_far_too_high_is_refused_by_either_engine(tmp_path: Path, engine: ResolvedEngine, alpha: float) -> None:
    corpus = prepare(planted_text(), tmp_path / "corpus")
    config = replace(CONFIG, alpha=alpha, engine=engine)
    with pytest.raises(InputError, match=r"diverged in epoch 1: [\d,]+ of [\d,]+ words .*: use a lower --alpha$"):
        train(corpus, config, tmp_path / "work")
    train(corpus, replace(config, alpha=0.1), tmp_path / "work")


@pytest.mark.parametrize("mean", [True, False])
def test_words_with_low_scores_are_counted(mean: bool) -> None:
    """Beside each word's score in its whole window, one at a time; word 5 is not trained."""
    rng = np.random.default_rng(1)
    lines = [rng.integers(0, 6, size).tolist() for size in (1, 0, 7, 30, 2, 12)]
    ids = np.array([word for line in lines for word in line], np.int32)
    stream = Stream(ids, np.cumsum([0, *map(len, lines)]), np.bincount(ids)[:5])
    weights = Weights(*(rng.normal(0, 2, (5, 8)).astype(np.float32) for _ in range(2)))
    weights.input[2, 0] = np.nan
    config = W2VConfig(dim=8, window=2, cbow_mean=mean)
    scores = []
    for line in lines:
        for i, word in enumerate(line):
            context = [other for j, other in enumerate(line) if 0 < abs(i - j) <= 2 and other < 5]
            if word < 5 and context:
                rows = weights.input[context].astype(float)
                scores.append((rows.mean(axis=0) if mean else rows.sum(axis=0)) @ weights.output[word])
    lost = sum(not score > -6 for score in scores)
    assert 0 < lost < len(scores)
    assert sample_lost(stream, weights, config) == (len(scores), lost)


def test_a_quarter_of_the_words_may_be_lost_and_a_hundred() -> None:
    require_learning(0, 1000, 250)
    require_learning(0, 100, 100)
    with pytest.raises(InputError, match=r"epoch 3: 251 of 1,000 "):
        require_learning(2, 1000, 251)
    with pytest.raises(InputError, match="not finite any more"):
        require_finite(0, np.array([[1, np.inf]], np.float32))
