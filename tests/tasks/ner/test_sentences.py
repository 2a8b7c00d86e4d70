"""Raw text as words; where sentences are cut, beside the worked example and by properties."""

import re
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenadapt.tasks.conll import Limits, Split, cut, entities, iob2, joined, split_text, usual_split

TEXT = "  Rash (mild), p<0.05 in\tT\u200bX-1; don't…\u00a0e\u0301té "


def test_words_at_white_space() -> None:
    sentence = split_text(TEXT, "whitespace")
    assert sentence.words == ("Rash", "(mild),", "p<0.05", "in", "T\u200bX-1;", "don't…", "e\u0301té")
    assert sentence.tags is None
    assert sentence.text == TEXT


def test_every_punctuation_character_is_a_word() -> None:
    words = "Rash|(|mild|)|,|p|<|0|.|05|in|T\u200bX|-|1|;|don|'|t|…|e\u0301té"
    assert "|".join(split_text(TEXT, "punctuation").words) == words


@pytest.mark.slow
@pytest.mark.parametrize("split", ["whitespace", "punctuation"])
@given(text=st.text())
def test_spans_are_the_words_and_nothing_is_lost(split: Split, text: str) -> None:
    sentence = split_text(text, split)
    assert sentence.spans is not None
    assert tuple(text[begin:end] for begin, end in sentence.spans) == sentence.words
    assert "".join(sentence.words) == re.sub(r"\s", "", text)
    assert all(sentence.words)


@pytest.mark.slow
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


TAGS = st.lists(st.sampled_from(["O", "B-A", "I-A", "I-A", "I-A"]), max_size=40).map(iob2)


def ones(n: int) -> list[np.ndarray]:
    return [np.ones(n, np.int64)]


def lengths(chunks: list[tuple[int, int]]) -> list[int]:
    return [end - begin for begin, end in chunks]


def test_the_worked_example() -> None:
    """Check 13 of the method's specification: 65 words with a span on words 29 to 33."""
    tags = ["O"] * 28 + ["B-A", "I-A", "I-A", "I-A", "I-A"] + ["O"] * 32
    assert lengths(cut(ones(65), tags, Limits(30, 510))) == [28, 30, 7]
    assert lengths(cut(ones(65), None, Limits(30, 510))) == [30, 30, 5]
    assert lengths(cut(ones(65), tags, Limits(None, 510))) == [65]


def test_a_span_longer_than_a_chunk_is_cut_and_keeps_its_words() -> None:
    tags = ["O"] * 3 + ["B-A"] + ["I-A"] * 24 + ["O"]
    assert cut(ones(29), tags, Limits(10, 510)) == [(0, 3), (3, 13), (13, 23), (23, 29)]


def test_spans_side_by_side_are_parted() -> None:
    tags = ["B-A", "I-A", "I-A", "B-A", "I-A", "I-A"]
    assert cut(ones(6), tags, Limits(4, 510)) == [(0, 3), (3, 6)]


def test_pieces_of_either_view_end_a_chunk() -> None:
    few, many = np.ones(6, np.int64), np.array([1, 4, 4, 1, 1, 1])
    assert cut([few, many], None, Limits(30, 5)) == cut([many, few], None, Limits(30, 5)) == [(0, 2), (2, 4), (4, 6)]
    tags = ["O", "B-A", "I-A", "O", "O", "O"]
    assert cut([few, many], tags, Limits(30, 5)) == [(0, 1), (1, 2), (2, 4), (4, 6)]  # the span needs 8 pieces


def test_no_words_no_chunks() -> None:
    assert cut(ones(0), None, Limits(30, 510)) == []


@pytest.mark.slow
@settings(deadline=None)
@given(tags=TAGS, words=st.integers(1, 9) | st.none(), pieces=st.integers(3, 20), data=st.data())
def test_chunks_restore_the_sentence_and_cut_no_span_that_fits(
    tags: list[str], words: int | None, pieces: int, data: st.DataObject
) -> None:
    size = st.lists(st.integers(1, 3), min_size=len(tags), max_size=len(tags)).map(np.array)
    sizes = [data.draw(size).astype(np.int64), data.draw(size).astype(np.int64)]
    chunks = cut(sizes, tags, Limits(words, pieces))
    assert list(chain.from_iterable(range(*chunk) for chunk in chunks)) == list(range(len(tags)))
    assert all(end > begin for begin, end in chunks)
    assert words is None or all(length <= words for length in lengths(chunks))
    assert all(one[begin:end].sum() <= pieces for one in sizes for begin, end in chunks)
    begins = {begin for begin, _ in chunks}
    for entity in entities(tags):
        inside = range(entity.first + 1, entity.last + 1)
        fits = words is None or len(inside) < words
        fits &= all(one[entity.first : entity.last + 1].sum() <= pieces for one in sizes)
        assert not (fits and begins & set(inside))
        assert not begins & set(inside) or entity.first in begins  # it is cut only after it had a chunk's begin
