"""Candidates put together and ranked."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from greenadapt.tasks.spans import AnswerCandidates, Candidate, merge_candidates, ranked

LOGITS = st.lists(st.floats(-50, 50), max_size=30)


def candidates(logits: list[float], null: float | None = None, document: str = "") -> AnswerCandidates:
    ordered = sorted(logits, reverse=True)
    spans = (Candidate(f"{document}{i}", i, i + 1, logit, document) for i, logit in enumerate(ordered))
    return AnswerCandidates(tuple(spans), null)


@pytest.mark.slow
@given(LOGITS, st.none() | st.floats(-50, 50))
def test_scores_are_the_softmax_over_all(logits: list[float], null: float | None) -> None:
    ranking = ranked(candidates(logits, null))
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
    ranking = ranked(candidates([3.0, 1.0], null), threshold)
    assert ("no answer" if ranking[0][0].start is None else "a span") == first
    assert len(ranking) == 3
    # The probability does not know the threshold.
    shares = dict(zip([3.0, 1.0, null], softmax([3.0, 1.0, null]), strict=True))
    if null != 3.0:
        assert all(math.isclose(score, shares[candidate.logit]) for candidate, score in ranking)


@given(st.lists(LOGITS, min_size=1, max_size=5), st.integers(1, 8))
def test_contexts_compare_by_raw_logits_whatever_the_order_of_merging(contexts: list[list[float]], n_best: int) -> None:
    parts = [candidates(logits, None, f"document {i} ") for i, logits in enumerate(contexts)]
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
    assert merge_candidates([candidates([1.0], 5.0), candidates([0.0], -2.0), candidates([2.0])], 9).null == -2.0
    assert merge_candidates([candidates([1.0]), candidates([2.0])], 9).null is None
