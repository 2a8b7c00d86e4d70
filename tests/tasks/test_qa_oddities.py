"""Answers in texts of odd characters, and how many gold answers a span can be in files as odd as Covid-QA."""

import json
import os
import re
import string
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenadapt.config import WordUnit
from greenadapt.progress import Silent
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import Question, read_questions
from tests.support.plain_qa import assert_same_answers, n_best, words_of

COVID_QA = "GREENADAPT_COVID_QA"
"""Names the file of Covid-QA of 23 April 2020, on which the method's authors report."""


Place = tuple[int, int]
Oracle = Callable[[str, list[Place], str], Place | None]
PUNCTUATION = str.maketrans("", "", string.punctuation)


@lru_cache(maxsize=1 << 16)
def letters(text: str) -> str:
    return text.lower().translate(PUNCTUATION)


def normalised(text: str) -> str:
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", letters(text)).split())


def exact_around(context: str, words: list[Place], gold: str) -> Place | None:
    """The fewest words around a place where ``gold`` stands, if these are equal to it once both are normalised."""
    begin = context.find(gold.strip())
    while begin >= 0:
        end = begin + len(gold.strip())
        first = bisect_right(words, begin, key=lambda word: word[1])
        last = bisect_left(words, end, key=lambda word: word[0]) - 1
        around = (words[first][0], words[last][1])
        if around[1] - around[0] <= 500 and normalised(context[slice(*around)]) == normalised(gold):
            return first, last
        begin = context.find(gold.strip(), begin + 1)
    return None


def exact_anywhere(context: str, words: list[Place], gold: str) -> Place | None:
    """The first span that is equal to ``gold`` once both are normalised, whether ``gold`` stands there or not.

    No such span needs a word of punctuation alone at its begin or end. The other words there are looked at first: to
    normalise every span takes hours.
    """
    target = normalised(gold)
    joined = target.replace(" ", "")
    plain_words = [letters(context[begin:end]) for begin, end in words]
    for first, head in enumerate(plain_words):
        if not head or not joined.startswith(head):
            continue
        for last in range(first, len(words)):
            begin, end = words[first][0], words[last][1]
            if end - begin > 500:
                break
            word = plain_words[last]
            if word and joined.endswith(word) and normalised(context[begin:end]) == target:
                return first, last
    return None


def reached(questions: list[Question], unit: WordUnit, best: Oracle) -> int:
    """How many answers to logits that know the best span are exact."""
    task = QuestionTask(word_unit=unit)
    units: dict[str, list[Place]] = {}
    predictions = []
    for question in questions:
        words = units.setdefault(question.context, words_of(question.context, unit))
        logits = np.zeros((len(words), 2), np.float32)
        if span := best(question.context, words, question.answers[0].text):
            logits[span[0], 0] = logits[span[1], 1] = 1
        predictions.append(task.decode(question, logits))
    return round(task.score(questions, predictions)["em"] * len(questions))


CONTEXT = "The virus (SARS-CoV-2) was isolated in 2012, from 10/75 samples.\nThe  heart"
LONG = "viruscell " * 49 + "tachycardi"  # 500 characters
CONTEXTS = [CONTEXT, f"Of {LONG} cells", f"Of {LONG}."]
UNITS: tuple[WordUnit, ...] = ("punct", "whitespace")
# Context, answer, answer_start as such files have it; words of which kind around it are equal to it, and anywhere.
ROWS: list[tuple[str, str, int, tuple[WordUnit, ...], tuple[WordUnit, ...]]] = [
    (CONTEXT, "2012", 39, UNITS, UNITS),
    (CONTEXT, " isolated in  \n", 26, UNITS, UNITS),  # blanks that the context has and blanks that it has not
    (CONTEXT, "virus", 9, UNITS, UNITS),  # it begins at character 4
    (CONTEXT, "The heart", 99999, (), UNITS),  # two spaces in the context
    (CONTEXT, "CoV", 16, ("punct",), ("punct",)),
    (CONTEXT, "75", 53, ("punct",), ("punct",)),  # 10/75 as one word is 1075
    (CONTEXT, "solated", 28, (), ()),
    (CONTEXTS[1], LONG, 3, UNITS, UNITS),
    (CONTEXTS[2], f"{LONG}.", 3, (), ("punct",)),  # 501 characters, of which 500 are enough
    (CONTEXTS[1], f"Of {LONG}", 0, (), ()),
]


@pytest.fixture
def odd_file(tmp_path: Path) -> Path:
    data: list[Any] = []
    for number, context in enumerate(CONTEXTS):
        questions = [
            {"id": 1000 + i, "question": "which?", "answers": [{"text": text, "answer_start": start}]}
            for i, (where, text, start, _, _) in enumerate(ROWS)
            if where == context
        ]
        data.append({"paragraphs": [{"context": context, "document_id": number, "qas": questions}]})
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"data": data}), "utf-8")
    return path


def test_answers_that_a_span_can_be(odd_file: Path) -> None:
    questions = read_questions(str(odd_file), Silent())
    assert len(LONG) == 500
    assert sorted(question.id for question in questions) == [str(1000 + i) for i in range(len(ROWS))]
    for unit in UNITS:
        for question in questions:
            *_, around, anywhere = ROWS[int(question.id) - 1000]
            assert reached([question], unit, exact_around) == (unit in around)
            assert reached([question], unit, exact_anywhere) == (unit in anywhere)
    assert [reached(questions, unit, exact_around) for unit in UNITS] == [6, 4]
    assert [reached(questions, unit, exact_anywhere) for unit in UNITS] == [8, 5]


@pytest.mark.skipif(COVID_QA not in os.environ, reason=f"{COVID_QA} does not name the file of Covid-QA")
def test_answers_of_covid_qa_that_a_span_can_be() -> None:
    questions = read_questions(os.environ[COVID_QA], Silent())
    assert len(questions) == len({question.id for question in questions}) == 1380
    assert len({question.context for question in questions}) == 98
    assert all(len(question.answers) == 1 for question in questions)
    assert sum(len(question.answers[0].text) > 500 for question in questions) == 15
    around = [reached(questions, unit, exact_around) for unit in UNITS]
    assert [round(n / 13.80, 2) for n in around] == [96.45, 95.14]
    anywhere = [reached(questions, unit, exact_anywhere) for unit in UNITS]
    assert [round(n / 13.80, 2) for n in anywhere] == [96.52, 96.16]


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
