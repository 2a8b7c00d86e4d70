"""The text in parts, thresholds as gensim's and word2vec's, limits beyond which training has diverged."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from gensim.models import Word2Vec
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.errors import InputError
from greenadapt.vectors.engine import stream as text
from greenadapt.vectors.engine.stream import (
    Stream,
    keep_thresholds,
    noise_weights,
    require_finite,
    require_learning,
    stream_parts,
)


def test_a_quarter_of_the_words_may_be_lost_and_a_hundred() -> None:
    require_learning(0, 1000, 250)
    require_learning(0, 100, 100)
    with pytest.raises(InputError, match=r"epoch 3: 251 of 1,000 "):
        require_learning(2, 1000, 251)
    with pytest.raises(InputError, match="not finite any more"):
        require_finite(0, np.array([[1, np.inf]], np.float32))


COUNTS = np.array([90_000, 20_000, 20_000, 700, 31, 5, 5, 1])


def make_stream(lines: list[list[int]], n_words: int) -> Stream:
    ids = np.array([word for line in lines for word in line], np.int32)
    counts = np.bincount(ids[ids < n_words], minlength=n_words).astype(np.int64)
    return Stream(ids, np.cumsum([0, *map(len, lines)], dtype=np.int64), counts)


@contextmanager
def sizes(part: int, longest: int = 7, most: int = 10_000) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_PART", part)
        patch.setattr(text, "_LONGEST", longest)
        patch.setattr(text, "_MAX_PARTS", most)
        yield


LINES = st.lists(st.lists(st.integers(0, 12), max_size=30), max_size=40)


@given(lines=LINES, n_words=st.integers(1, 12), part=st.integers(1, 60), most=st.sampled_from([1, 3, 10_000]))
def test_each_id_is_in_one_span(lines: list[list[int]], n_words: int, part: int, most: int) -> None:
    stream = make_stream(lines, n_words)
    with sizes(part, most=most):
        spans = list(stream_parts(stream))
    met = 0
    position = 0
    for span in spans:
        begin, end = int(span.borders[0]), int(span.borders[-1])
        assert (stream.ids[position:begin] >= n_words).all()  # what no span has is not trained
        inside = stream.ids[begin:end]
        assert (span.before, span.words) == (met, np.count_nonzero(inside < n_words))
        assert span.words > 0
        met += span.words
        position = end
    assert (stream.ids[position:] >= n_words).all()
    assert met == stream.total
    assert len({span.number for span in spans}) == len(spans) <= max(most, 1) + 1


@given(lines=LINES, part=st.integers(1, 60))
def test_a_span_has_the_borders_of_its_lines(lines: list[list[int]], part: int) -> None:
    """Only a line that is longer than it may be is cut, after as many words as it may have, or twice as many …"""
    stream = make_stream(lines, 13)
    ends = set(stream.lines.tolist())
    with sizes(part):
        spans = list(stream_parts(stream))
    for span in spans:
        borders = span.borders.tolist()
        assert borders == sorted(set(borders))
        assert ends & set(range(borders[0], borders[-1] + 1)) <= set(borders)
        for border in set(borders) - ends:
            line = max(end for end in ends if end < border)
            assert border in (borders[0], borders[-1])
            assert (border - line) % 7 == 0


def plain_gensim(sample: float) -> Word2Vec:
    model = Word2Vec(vector_size=2, min_count=1, sample=sample, sorted_vocab=0)
    model.build_vocab_from_freq({f"w{row}": count for row, count in enumerate(COUNTS.tolist())})
    return model


def test_negatives_are_as_frequent_as_gensims() -> None:
    weights = noise_weights(COUNTS)
    assert (weights.dtype, weights.shape) == (np.float64, COUNTS.shape)
    theirs = np.diff(plain_gensim(1e-3).cum_table.astype(np.float64), prepend=0) / (2**31 - 1)
    np.testing.assert_allclose(weights / weights.sum(), theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("sample", [1e-3, 0, 5])
def test_words_are_kept_as_often_as_by_gensim(sample: float) -> None:
    theirs = [plain_gensim(sample).wv.get_vecattr(row, "sample_int") for row in range(len(COUNTS))]
    assert keep_thresholds(COUNTS, sample).tolist() == theirs
