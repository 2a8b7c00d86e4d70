"""Answers in texts of odd characters."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from greenadapt.config import WordUnit
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question
from tests.support.plain_qa import assert_same_answers, n_best, words_of

ODD_TEXTS = st.text(st.sampled_from("ab é.,-_'[]\n\t\u00a0\u200b\u0301日…3"), max_size=40)


@settings(deadline=None)
@given(ODD_TEXTS, st.sampled_from(["punct", "whitespace"]), st.integers(1, 40), st.integers(0, 1000))
def test_answers_are_slices_and_those_of_brute_force(context: str, unit: WordUnit, max_chars: int, seed: int) -> None:
    words = words_of(context, unit)
    logits = np.random.default_rng(seed).integers(-3, 3, (len(words), 2)).astype(np.float32)  # with many ties
    logits[(logits == -3).any(axis=1)] = -np.inf
    answers = QuestionTask(word_unit=unit, max_answer_chars=max_chars).answers(Question("q", "", context), logits)
    assert_same_answers(answers, n_best(context, words, [tuple(pair) for pair in logits.tolist()], max_chars), context)
    begins, ends = {begin for begin, _ in words}, {end for _, end in words}
    for answer in answers:
        if answer["start"] is not None:
            assert answer["start"] in begins
            assert answer["end"] in ends
            assert answer["end"] - answer["start"] <= max_chars
