"""Raw text as words."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.tasks.ner.sentences import Split, joined, split_text, usual_split

TEXT = "  Rash (mild), p<0.05 in\tT\u200bX-1; don't…\u00a0e\u0301té "


def test_words_at_white_space() -> None:
    sentence = split_text(TEXT, "whitespace")
    assert sentence.words == ("Rash", "(mild),", "p<0.05", "in", "T\u200bX-1;", "don't…", "e\u0301té")
    assert sentence.tags is None
    assert sentence.text == TEXT


def test_every_punctuation_character_is_a_word() -> None:
    words = "Rash|(|mild|)|,|p|<|0|.|05|in|T\u200bX|-|1|;|don|'|t|…|e\u0301té"
    assert "|".join(split_text(TEXT, "punctuation").words) == words


@pytest.mark.parametrize("split", ["whitespace", "punctuation"])
@given(text=st.text())
def test_spans_are_the_words_and_nothing_is_lost(split: Split, text: str) -> None:
    sentence = split_text(text, split)
    assert sentence.spans is not None
    assert tuple(text[begin:end] for begin, end in sentence.spans) == sentence.words
    assert "".join(sentence.words) == re.sub(r"\s", "", text)
    assert all(sentence.words)


@given(words=st.lists(st.text()))
def test_words_that_are_split_already(words: list[str]) -> None:
    sentence = joined(words)
    assert (sentence.words, sentence.tags, sentence.text) == (tuple(words), None, " ".join(words))
    assert sentence.spans is not None
    assert sentence.text is not None
    assert [sentence.text[begin:end] for begin, end in sentence.spans] == words
    assert all(after[0] == before[1] + 1 for before, after in pairwise(sentence.spans))


@pytest.mark.parametrize("text", ["", "  \t "])
def test_no_words(text: str) -> None:
    assert split_text(text, "punctuation").words == ()


def test_usual_split() -> None:
    words = ["rash", "was", "p53", ",", "(", "U.S", "x-", "'s"] * 20
    assert usual_split(words) == "punctuation"
    assert usual_split([*words, "rash,"]) == "punctuation"  # 1 of 121
    assert usual_split([*words, "rash,", "(mild"]) == "whitespace"  # 2 of 122
    assert usual_split([*words, ",,", "..."]) == "punctuation"  # no letter in them
