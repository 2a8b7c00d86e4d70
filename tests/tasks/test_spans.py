"""Scores of answers, against torchmetrics' port of the published SQuAD scorer."""

import re
import string
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from greenadapt.tasks.spans import (
    AnswerScores,
    Span,
    best_spans,
    candidates,
    find_units,
    furthest_words,
    normalise,
    score_answer,
    with_carried_ends,
    word_units,
)

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
    words, gold_words = prediction.split(), gold.split()
    n_same = sum((Counter(words) & Counter(gold_words)).values())
    if is_second and (len(gold_words) == 0 or len(words) == 0):
        return int(gold_words == words)
    if n_same == 0:
        return 0
    precision, recall = n_same / len(words), n_same / len(gold_words)
    return (2 * precision * recall) / (precision + recall)


@pytest.mark.parametrize("is_second", [False, True])
def test_each_version_counts_texts_without_words_as_its_scorer_does(is_second: bool) -> None:
    rng = np.random.default_rng(2)
    n_empty = 0
    for _ in range(300):
        prediction, golds = some_text(rng), [some_text(rng) for _ in range(rng.integers(1, 4))]
        predicted, normalized = normalise(prediction), [normalise(gold) for gold in golds]
        ours = score_answer(prediction, golds, is_second=is_second)
        assert ours.em == max(predicted == gold for gold in normalized)
        assert ours.f1 == pytest.approx(max(published_f1(predicted, gold, is_second=is_second) for gold in normalized))
        n_empty += not predicted and not all(normalized)
    assert n_empty > 5
    empty = score_answer("The", ["a"], is_second=is_second)
    assert (empty.em, empty.f1) == (1, float(is_second))


def test_substr_counts_predictions_within_a_gold_answer() -> None:
    assert score_answer("2012", ["isolated in 2012,"], is_second=True).substr == 1
    assert score_answer("isolated in 2012,", ["2012"], is_second=True).substr == 0
    assert score_answer("The Virus", ["no", "one virus."], is_second=True).substr == 1
    assert score_answer("", ["virus"], is_second=True).substr == 0
    assert score_answer("the", ["virus"], is_second=True).substr == 0
    assert score_answer("", [], is_second=True) == AnswerScores(1, 1, 1)
    assert score_answer("virus", [], is_second=True) == AnswerScores(0, 0, 0)


PUNCTUATION = re.escape(string.punctuation)
TEXTS = st.text(st.sampled_from("ab é.,-_~`[]\n\t\u00a0\u200b…3")) | st.text(max_size=30)


def texts_of(context: str, unit: str) -> list[str]:
    return [context[a:b] for a, b in word_units(context, unit)]  # type: ignore[arg-type]


@given(TEXTS)
def test_units_are_runs_of_white_space_and_punctuation(context: str) -> None:
    assert texts_of(context, "whitespace") == context.split()
    expected = [part for word in context.split() for part in re.split(f"([{PUNCTUATION}]+)", word) if part]
    assert texts_of(context, "punct") == expected


@given(TEXTS, st.lists(st.integers(0, 29)))
def test_a_character_belongs_to_the_unit_around_it(context: str, characters: list[int]) -> None:
    units = word_units(context)
    expected = [next((i for i, (a, b) in enumerate(units) if a <= character < b), -1) for character in characters]
    assert find_units(np.array(characters, np.int64), units).tolist() == expected


def slowly(units: np.ndarray, logits: np.ndarray, max_chars: int) -> list[Span]:
    spans = [
        (k, last, float(logits[k, 0]) + float(logits[last, 1]))
        for k in range(len(units))
        for last in range(k, len(units))
        if units[last, 1] - units[k, 0] <= max_chars and np.isfinite(logits[k, 0]) and np.isfinite(logits[last, 1])
    ]
    return sorted(spans, key=lambda span: -span[2])  # stable: ties stay in order


@pytest.mark.slow
@settings(deadline=None)
@given(st.data(), st.integers(1, 12))
def test_spans_come_in_the_order_of_going_through_all(data: st.DataObject, max_chars: int) -> None:
    words = data.draw(st.lists(st.sampled_from(["a", "bb", "cccc", "d" * 14]), max_size=12))
    units = word_units(" ".join(words))
    value = st.sampled_from([-np.inf, -1.0, 0.0, 1.0, 2.0])  # few values, so that there are ties
    drawn = data.draw(st.lists(st.tuples(value, value), min_size=len(units), max_size=len(units)))
    logits = np.array(drawn, np.float32).reshape(-1, 2)
    assert list(best_spans(units, logits, max_chars)) == slowly(units, logits, max_chars)


def test_spans_have_at_most_so_many_pieces() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        units = word_units(" ".join("x" * length for length in rng.integers(1, 12, 40)))
        logits = rng.normal(size=(len(units), 2)).astype(np.float32)
        sizes = rng.integers(0, 5, len(units))
        fit = [span for span in slowly(units, logits, 500) if sizes[span[0] : span[1] + 1].sum() <= 6]
        assert list(best_spans(units, logits, 500, furthest_words(sizes, 6))) == fit


def test_spans_of_a_long_context(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    units = word_units(" ".join("x" * length for length in rng.integers(1, 12, 600)))
    logits = rng.normal(size=(len(units), 2)).astype(np.float32)
    expected = slowly(units, logits, 500)[:1000]
    assert list(best_spans(units, logits, 500)) == expected
    monkeypatch.setattr("greenadapt.tasks.spans._WORDS_AT_ONCE", 70)
    assert list(best_spans(units, logits, 500)) == expected


def test_candidates_are_verbatim_and_differ_in_text() -> None:
    context = "the  virus and the  virus"
    units = word_units(context)
    logits = np.array([[3, 0], [1, 5], [0, 0], [2, 0], [0, 4]], np.float32)
    best = candidates(context, units, best_spans(units, logits, 500), 4)
    assert [(candidate.text, candidate.start, candidate.end, candidate.logit) for candidate in best] == [
        ("the  virus", 0, 10, 8),
        ("the  virus and the  virus", 0, 25, 7),
        ("virus", 5, 10, 6),
        ("virus and the  virus", 5, 25, 5),
    ]


def test_a_piece_of_two_units_ends_in_the_second() -> None:
    """``Parkinson's`` in byte-level BPE, whose ``'s`` is one piece: no piece begins in ``s``."""
    context = "Parkinson's disease"
    units = word_units(context, "punct")
    assert [context[begin:end] for begin, end in units.tolist()] == ["Parkinson", "'", "s", "disease"]
    logits = np.array([[5, 0], [1, 6], [-np.inf, -np.inf], [0, 1]], np.float32)
    carried = with_carried_ends(units, logits)
    assert carried[:, 0].tolist() == logits[:, 0].tolist()
    assert carried[:, 1].tolist() == [0, -np.inf, 6, 1]
    first, last, _ = next(best_spans(units, carried, 500))
    assert context[units[first, 0] : units[last, 1]] == "Parkinson's"
    # A word that stands alone and has no piece is never chosen.
    alone = word_units("heart x rate", "punct")
    assert with_carried_ends(alone, logits[:3])[:, 1].tolist() == [0, 6, -np.inf]
