"""Scores of answers, against torchmetrics' port of the published SQuAD scorer, and their order."""

import math
import re
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from torchmetrics.functional.text import squad

from greenadapt.tasks.spans import (
    AnswerCandidates,
    AnswerScores,
    Candidate,
    Span,
    candidates,
    carry_ends,
    find_units,
    furthest_words,
    merge_candidates,
    rank,
    rank_spans,
    score_answer,
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


def test_substr_counts_predictions_within_a_gold_answer() -> None:
    assert score_answer("2012", ["isolated in 2012,"], is_second=True).substr == 1
    assert score_answer("isolated in 2012,", ["2012"], is_second=True).substr == 0
    assert score_answer("The Virus", ["no", "one virus."], is_second=True).substr == 1
    assert score_answer("", ["virus"], is_second=True).substr == 0
    assert score_answer("the", ["virus"], is_second=True).substr == 0
    assert score_answer("", [], is_second=True) == AnswerScores(1, 1, 1)
    assert score_answer("virus", [], is_second=True) == AnswerScores(0, 0, 0)


@pytest.mark.parametrize("is_second", [False, True])
def test_each_version_counts_texts_without_words_as_its_scorer_does(is_second: bool) -> None:
    """``f1_score`` of evaluate-v1.1.py gives 0 to equal texts without words, ``compute_f1`` of evaluate-v2.0.py 1."""
    scores = score_answer("The", ["a"], is_second=is_second)
    assert (scores.em, scores.f1) == (1, float(is_second))


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
    assert list(rank_spans(units, logits, max_chars)) == slowly(units, logits, max_chars)


def test_spans_have_at_most_so_many_pieces() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        units = word_units(" ".join("x" * length for length in rng.integers(1, 12, 40)))
        logits = rng.normal(size=(len(units), 2)).astype(np.float32)
        sizes = rng.integers(0, 5, len(units))
        fit = [span for span in slowly(units, logits, 500) if sizes[span[0] : span[1] + 1].sum() <= 6]
        assert list(rank_spans(units, logits, 500, furthest_words(sizes, 6))) == fit


def test_spans_of_a_long_context(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    units = word_units(" ".join("x" * length for length in rng.integers(1, 12, 600)))
    logits = rng.normal(size=(len(units), 2)).astype(np.float32)
    expected = slowly(units, logits, 500)[:1000]
    assert list(rank_spans(units, logits, 500)) == expected
    monkeypatch.setattr("greenadapt.tasks.spans._WORDS_AT_ONCE", 70)
    assert list(rank_spans(units, logits, 500)) == expected


def test_candidates_are_verbatim_and_differ_in_text() -> None:
    context = "the  virus and the  virus"
    units = word_units(context)
    logits = np.array([[3, 0], [1, 5], [0, 0], [2, 0], [0, 4]], np.float32)
    best = candidates(context, units, rank_spans(units, logits, 500), 4)
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
    carried = carry_ends(units, logits)
    assert carried[:, 0].tolist() == logits[:, 0].tolist()
    assert carried[:, 1].tolist() == [0, -np.inf, 6, 1]
    first, last, _ = next(rank_spans(units, carried, 500))
    assert context[units[first, 0] : units[last, 1]] == "Parkinson's"
    # A word that stands alone and has no piece is never chosen.
    alone = word_units("heart x rate", "punct")
    assert carry_ends(alone, logits[:3])[:, 1].tolist() == [0, 6, -np.inf]


LOGITS = st.lists(st.floats(-50, 50), max_size=30)


def candidates_of(logits: list[float], null: float | None = None, document: str = "") -> AnswerCandidates:
    ordered = sorted(logits, reverse=True)
    spans = (Candidate(f"{document}{i}", i, i + 1, logit, document) for i, logit in enumerate(ordered))
    return AnswerCandidates(tuple(spans), null)


@pytest.mark.slow
@given(LOGITS, st.none() | st.floats(-50, 50))
def test_scores_are_the_softmax_over_all(logits: list[float], null: float | None) -> None:
    ranking = rank(candidates_of(logits, null))
    if not logits and null is None:
        assert [(candidate.text, candidate.start, score) for candidate, score in ranking] == [("", None, 0.0)]
        return
    values = sorted([*logits, *([] if null is None else [null])], reverse=True)
    assert [candidate.logit for candidate, _ in ranking] == values
    np.testing.assert_allclose([score for _, score in ranking], softmax(np.array(values)), atol=1e-12)
    assert math.isclose(sum(score for _, score in ranking), 1)


@pytest.mark.parametrize(
    ("null", "threshold", "first"),
    [
        (3.5, 0.0, "no answer"),
        (3.0, 0.0, "a span"),  # of equals the span: its score has to be higher by more than the threshold
        (3.5, 1.0, "a span"),
        (4.5, 1.0, "no answer"),
    ],
)
def test_no_answer_needs_a_logit_higher_by_the_threshold(null: float, threshold: float, first: str) -> None:
    ranking = rank(candidates_of([3.0, 1.0], null), threshold)
    assert ("no answer" if ranking[0][0].start is None else "a span") == first
    assert len(ranking) == 3
    # The probability does not know the threshold.
    shares = dict(zip([3.0, 1.0, null], softmax([3.0, 1.0, null]), strict=True))
    if null != 3.0:
        assert all(math.isclose(score, shares[candidate.logit]) for candidate, score in ranking)


@given(st.lists(LOGITS, min_size=1, max_size=5), st.integers(1, 8))
def test_contexts_compare_by_raw_logits_whatever_the_order_of_merging(contexts: list[list[float]], n_best: int) -> None:
    parts = [candidates_of(logits, None, f"document {i} ") for i, logits in enumerate(contexts)]
    at_once = merge_candidates(parts, n_best)
    every = [(logit, i) for i, logits in enumerate(contexts) for logit in sorted(logits, reverse=True)]
    every.sort(key=lambda pair: -pair[0])
    assert [(candidate.logit, candidate.document) for candidate in at_once.candidates] == [
        (logit, f"document {i} ") for logit, i in every[:n_best]
    ]
    in_turn = AnswerCandidates(())
    for part in parts:
        in_turn = merge_candidates([in_turn, part], n_best)
    assert in_turn == at_once


def test_there_is_no_answer_only_where_every_context_says_so() -> None:
    assert (
        merge_candidates([candidates_of([1.0], 5.0), candidates_of([0.0], -2.0), candidates_of([2.0])], 9).null == -2.0
    )
    assert merge_candidates([candidates_of([1.0]), candidates_of([2.0])], 9).null is None
