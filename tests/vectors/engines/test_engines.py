"""Training that diverges ends with an error, and training that learns does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gensim.models import Word2Vec
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.errors import InputError
from greenadapt.vectors import engines
from greenadapt.vectors.cbow import memory_needed
from greenadapt.vectors.engines import (
    Stream,
    cuts,
    keep_thresholds,
    noise_weights,
    require_finite,
    require_learning,
    stream_parts,
)
from greenadapt.vectors.engines import gensim as engine
from tests.vectors.test_cbow import CONFIG, planted_text, prepare, train


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_a_learning_rate_far_too_high_is_refused(tmp_path: Path, workers: int) -> None:
    corpus = prepare(planted_text(), tmp_path / "corpus")
    config = replace(CONFIG, alpha=50, engine="fast", workers=workers)
    with pytest.raises(InputError, match=r"diverged in epoch 1: [\d,]+ of [\d,]+ words .*: use a lower --alpha$"):
        train(corpus, config, tmp_path / "work")
    train(corpus, replace(config, alpha=0.1), tmp_path / "work")


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
        patch.setattr(engines, "_PART", part)
        patch.setattr(engines, "_LONGEST", longest)
        patch.setattr(engines, "_MAX_PARTS", most)
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


@pytest.mark.slow
@given(lines=LINES, part=st.integers(1, 60))
def test_cuts_follow_each_other_and_are_about_as_long_as_wanted(lines: list[list[int]], part: int) -> None:
    stream = make_stream(lines, 13)
    with sizes(part):
        spans = list(cuts(stream))
    assert [begin for begin, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == len(stream.ids)
    assert all(end - begin < 2 * part + 7 + 30 for begin, end in spans)


def test_a_text_of_many_parts() -> None:
    stream = make_stream([list(range(20))] * 10_000, 16)
    spans = list(stream_parts(stream))
    assert [span.number for span in spans] == [0, 1, 2, 3]
    assert [span.borders[0] for span in spans] == [0, 50_000, 100_000, 150_000]
    assert sum(span.words for span in spans) == stream.total == 160_000


def test_a_line_is_cut_where_gensims_batches_end() -> None:
    """The engine of gensim cuts a long line into batches from its beginning, so a part must begin at one of these."""
    stream = make_stream([[1] * 120_000], 2)
    assert len(list(cuts(stream))) > 1
    assert all(begin % engine.BATCH == 0 for begin, _ in cuts(stream))


def plain_gensim(sample: float) -> Word2Vec:
    model = Word2Vec(vector_size=2, min_count=1, sample=sample, sorted_vocab=0)
    model.build_vocab_from_freq({f"w{row}": count for row, count in enumerate(COUNTS.tolist())})
    return model


def test_negatives_are_as_frequent_as_gensims() -> None:
    weights = noise_weights(COUNTS)
    assert (weights.dtype, weights.shape) == (np.float64, COUNTS.shape)
    theirs = np.diff(plain_gensim(1e-3).cum_table.astype(np.float64), prepend=0) / (2**31 - 1)
    np.testing.assert_allclose(weights / weights.sum(), theirs, rtol=0, atol=1e-9)


def test_a_frequent_word_is_kept_by_word2vecs_rule() -> None:
    """√(t/c) + t/c of word2vec.c, at most 1, where t is the sample times all words."""
    share = keep_thresholds(COUNTS, 1e-3).astype(np.float64) / (2**32 - 1)
    relative = 1e-3 * COUNTS.sum() / COUNTS
    np.testing.assert_allclose(share, np.minimum(np.sqrt(relative) + relative, 1), atol=1e-9)
    assert share[0] < 0.04
    assert (share[4:] == 1).all()


def test_the_copies_count_as_memory() -> None:
    def tables(dim: int) -> int:
        return memory_needed(1000, 1000, dim, "fast") - memory_needed(0, 1000, dim, "fast")

    assert tables(300) - tables(320) == 2 * 4 * 1000 * 300
    assert memory_needed(9, 9, 300, "gensim") < memory_needed(9, 9, 320, "gensim")
