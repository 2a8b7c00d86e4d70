"""Words of a context and the best spans of them, against going through all spans one by one."""

import re
import string

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenadapt.tasks.spans import (
    Span,
    best_spans,
    candidates,
    furthest_words,
    unit_of_each,
    with_carried_ends,
    word_units,
)

PUNCTUATION = re.escape(string.punctuation)
TEXTS = st.text(st.sampled_from("ab é.,-_~`[]\n\t\u00a0\u200b…3")) | st.text(max_size=30)


def texts_of(context: str, unit: str) -> list[str]:
    return [context[a:b] for a, b in word_units(context, unit)]  # type: ignore[arg-type]


@given(TEXTS)
def test_units_are_runs_of_white_space_and_punctuation(context: str) -> None:
    assert texts_of(context, "whitespace") == context.split()
    expected = [part for word in context.split() for part in re.split(f"([{PUNCTUATION}]+)", word) if part]
    assert texts_of(context, "punct") == expected


def test_punctuation_is_a_unit() -> None:
    assert texts_of("SARS-CoV-2 (2019).", "punct") == ["SARS", "-", "CoV", "-", "2", "(", "2019", ")."]
    assert texts_of("SARS-CoV-2 (2019).", "whitespace") == ["SARS-CoV-2", "(2019)."]


@given(TEXTS, st.lists(st.integers(0, 29)))
def test_a_place_belongs_to_the_unit_around_it(context: str, places: list[int]) -> None:
    units = word_units(context)
    holders = [next((i for i, (a, b) in enumerate(units) if a <= place < b), -1) for place in places]
    assert unit_of_each(np.array(places, np.int64), units).tolist() == holders


def slowly(units: np.ndarray, logits: np.ndarray, max_chars: int) -> list[Span]:
    found = [
        Span(k, last, float(logits[k, 0]) + float(logits[last, 1]))
        for k in range(len(units))
        for last in range(k, len(units))
        if units[last, 1] - units[k, 0] <= max_chars and np.isfinite(logits[k, 0]) and np.isfinite(logits[last, 1])
    ]
    return sorted(found, key=lambda span: -span.logit)  # stable: what is found first stays first


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
        fit = [span for span in slowly(units, logits, 500) if sizes[span.first : span.last + 1].sum() <= 6]
        found = list(best_spans(units, logits, 500, furthest_words(sizes, 6)))
        assert found == fit


def test_spans_of_a_long_context() -> None:
    rng = np.random.default_rng(0)
    units = word_units(" ".join("x" * length for length in rng.integers(1, 12, 600)))
    logits = rng.normal(size=(len(units), 2)).astype(np.float32)
    spans = best_spans(units, logits, 500)
    assert [next(spans) for _ in range(100)] == slowly(units, logits, 500)[:100]


@pytest.mark.parametrize(("length", "expected"), [(500, (0, 1)), (501, None)])
def test_an_answer_has_at_most_500_characters(length: int, expected: tuple[int, int] | None) -> None:
    context = "x" + " " * (length - 2) + "y"
    logits = np.array([[9, -9], [-9, 9]], np.float32)
    best = next(best_spans(word_units(context), logits, 500))
    if expected:
        assert (best.first, best.last, best.logit) == (*expected, 18)
    else:
        assert best.first == best.last


def test_a_word_that_is_too_long_is_skipped_and_none_ends_before_it_starts() -> None:
    units = word_units("y " + "x" * 501 + " z")
    logits = np.array([[0, 5], [9, 9], [9, 0]], np.float32)
    assert [(span.first, span.last) for span in best_spans(units, logits, 500)] == [(2, 2), (0, 0)]


def test_no_words_have_no_spans() -> None:
    assert list(best_spans(word_units(" \n"), np.zeros((0, 2), np.float32), 500)) == []
    unread = np.full((2, 2), -np.inf, np.float32)
    assert list(best_spans(word_units("a b"), unread, 500)) == []
    # Of two views whose mean is taken, one may not speak for a word.
    partly = (unread + np.array([[0, 0], [1, 1]])) / 2
    assert list(best_spans(word_units("a b"), partly, 500)) == []


def test_candidates_are_verbatim_and_differ_in_text() -> None:
    context = "the  virus and the  virus"
    units = word_units(context)
    logits = np.array([[3, 0], [1, 5], [0, 0], [2, 0], [0, 4]], np.float32)
    found = candidates(context, units, best_spans(units, logits, 500), 4)
    assert [(one.text, one.start, one.end, one.logit) for one in found] == [
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
    best = next(best_spans(units, carried, 500))
    assert context[units[best.first, 0] : units[best.last, 1]] == "Parkinson's"
    # A word that stands alone and has no piece is never chosen.
    alone = word_units("heart x rate", "punct")
    assert with_carried_ends(alone, logits[:3])[:, 1].tolist() == [0, 6, -np.inf]
