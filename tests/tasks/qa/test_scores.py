"""Scores of answers, against torchmetrics' port of the published SQuAD scorer."""

from collections import Counter

import numpy as np
import pytest
from torchmetrics.functional.text import squad

from greenadapt.tasks.spans import AnswerScores, f1, normalise, score_answer

# What the scorer's rules are about: articles, case, punctuation, white space of every kind, words that occur twice.
PARTS = [
    *("the", "The", "a", "an", "virus", "Virus,", "viruses", "theory", "2012", "in", "(in)", "ÉTÉ", "…", "-", "the-a"),
    *("\n", "\u00a0", "  ", "it's", "U.S.", "isolated", "isolated"),
]


def some_text(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(PARTS, rng.integers(0, 6)).tolist())


def test_em_and_f1_are_those_of_the_published_scorer() -> None:
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        prediction, golds = some_text(rng), [some_text(rng) for _ in range(rng.integers(1, 4))]
        target = {"answers": {"text": golds, "answer_start": [0] * len(golds)}, "id": "1"}
        expected = squad([{"prediction_text": prediction, "id": "1"}], [target])
        ours = score_answer(prediction, golds, is_second=True)
        assert 100 * ours.em == expected["exact_match"].item()
        assert 100 * ours.f1 == pytest.approx(expected["f1"].item(), abs=1e-4)
        seen.add((ours.em, 0 < ours.f1 < 1))
    assert len(seen) == 3  # the texts give equal ones, others in part equal, and others that are not


def published_f1(prediction: str, gold: str, *, is_second: bool) -> float:
    """``f1_score`` of evaluate-v1.1.py, and ``compute_f1`` of evaluate-v2.0.py, on normalised texts."""
    predicted, wanted = prediction.split(), gold.split()
    n_same = sum((Counter(predicted) & Counter(wanted)).values())
    if is_second and (len(wanted) == 0 or len(predicted) == 0):
        return int(wanted == predicted)
    if n_same == 0:
        return 0
    precision, recall = n_same / len(predicted), n_same / len(wanted)
    return (2 * precision * recall) / (precision + recall)


@pytest.mark.parametrize("is_second", [False, True])
def test_each_version_counts_texts_without_words_as_its_scorer_does(is_second: bool) -> None:
    rng = np.random.default_rng(2)
    n_empty = 0
    for _ in range(300):
        prediction, golds = some_text(rng), [some_text(rng) for _ in range(rng.integers(1, 4))]
        predicted, wanted = normalise(prediction), [normalise(gold) for gold in golds]
        ours = score_answer(prediction, golds, is_second=is_second)
        assert ours.em == max(predicted == gold for gold in wanted)
        assert ours.f1 == pytest.approx(max(published_f1(predicted, gold, is_second=is_second) for gold in wanted))
        n_empty += not predicted and not all(wanted)
    assert n_empty > 5
    both = score_answer("The", ["a"], is_second=is_second)
    assert (both.em, both.f1) == (1, float(is_second))


def test_mean_is_that_of_the_published_scorer() -> None:
    rng = np.random.default_rng(1)
    predictions, golds = zip(*((some_text(rng), some_text(rng)) for _ in range(50)), strict=True)
    answers = [{"answers": {"text": [gold], "answer_start": [0]}, "id": str(i)} for i, gold in enumerate(golds)]
    expected = squad([{"prediction_text": text, "id": str(i)} for i, text in enumerate(predictions)], answers)
    scores = [score_answer(one, [gold], is_second=True) for one, gold in zip(predictions, golds, strict=True)]
    mean = AnswerScores.mean(scores)
    assert (100 * mean.em, 100 * mean.f1) == pytest.approx((expected["exact_match"].item(), expected["f1"].item()))


def test_substr_counts_predictions_within_a_gold_answer() -> None:
    assert score_answer("2012", ["isolated in 2012,"], is_second=True).substr == 1
    assert score_answer("isolated in 2012,", ["2012"], is_second=True).substr == 0
    assert score_answer("The Virus", ["no", "one virus."], is_second=True).substr == 1
    assert score_answer("", ["virus"], is_second=True).substr == 0
    assert score_answer("the", ["virus"], is_second=True).substr == 0
    assert score_answer("", [], is_second=True) == AnswerScores(1, 1, 1)
    assert score_answer("virus", [], is_second=True) == AnswerScores(0, 0, 0)


def test_normalised_text() -> None:
    assert normalise("The  U.S.-based\nan anthem, a ") == "usbased anthem"
    assert f1("b b c", "b c c", is_second=True) == pytest.approx(2 / 3)
