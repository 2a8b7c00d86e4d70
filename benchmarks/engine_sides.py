"""The sides of ``engines.py``: how each trains on a prepared corpus, and what of it is timed.

- ``fast``, ``gensim``: greenadapt's engines, driven as ``greenadapt.vectors.cbow.train`` does, without its checkpoints.
  The epochs are timed; in them gensim's kernel reads its text, which is written before.
- ``gensim-lists``: ``gensim.models.Word2Vec`` on lists of words, made line by line within the timed epochs. Its
  vocabulary is built beforehand.
- ``word2vec-c``: see ``word2vec_c.py``.

What a side sets up first (vocabulary, tables, compiled code) is not timed, and all have the same options.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import word2vec_c
from machine import peak_memory

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.storage.arrays import Array
from greenadapt.vectors import cbow as w2v
from greenadapt.vectors.engines import Stream
from greenadapt.vectors.word_vectors import WordVectors

OWN = ("fast", "gensim")
"""The sides that are greenadapt's own engines."""
SIDES = (*OWN, "gensim-lists", "word2vec-c")
_LONGEST = 10_000  # words of a line; gensim drops the rest, so its own readers cut there


@dataclass(frozen=True)
class Trained:
    """The speed of a side, and its vectors."""

    words: float
    """Trained words a second, all epochs together; words that are too rare do not count."""
    memory: float
    """Of its process at most, in MB."""
    vectors: Callable[[], WordVectors]


@dataclass(frozen=True)
class Job:
    """The text and the settings that a side trains with."""

    side: str
    corpus: PreparedCorpus
    config: W2VConfig
    folder: Path
    """Takes temporary files."""
    program: Path | None = None
    """word2vec.c, built, which reads ``text``."""
    text: Path | None = None

    @property
    def n_words(self) -> int:
        return int((self.corpus.counts >= self.config.min_count).sum())

    @property
    def total(self) -> int:
        return int(np.count_nonzero(self.corpus.ids < self.n_words)) * self.config.epochs

    def vectors(self, matrix: Array) -> WordVectors:
        """``matrix`` with the words that its rows are of."""
        return WordVectors(self.corpus.words[: self.n_words], self.corpus.counts[: self.n_words], matrix)


def trained(job: Job) -> Trained:
    """Do ``job``, after all code that it needs is imported and compiled."""
    if job.side in OWN:
        _warm_up(job)
        return _greenadapt(job)
    return _lists(job) if job.side == "gensim-lists" else _word2vec_c(job)


def _greenadapt(job: Job) -> Trained:
    corpus, config = job.corpus, job.config
    matrix, seconds = _epochs(Stream(corpus.ids, corpus.lines, corpus.counts[: job.n_words]), config, job.folder)
    return Trained(job.total / seconds, peak_memory(), lambda: job.vectors(matrix))


def _warm_up(job: Job) -> None:
    """Import and compile: numba finds its code compiled if it ever was on this machine."""
    ids = np.arange(1000, dtype=np.int32) % 10
    stream = Stream(ids, np.array([0, len(ids)]), np.full(10, 100))
    _epochs(stream, replace(job.config, epochs=1), job.folder)


def _epochs(stream: Stream, config: W2VConfig, folder: Path) -> tuple[Array, float]:
    """The vectors, and the seconds of the epochs."""
    weights = w2v.initial_weights(stream.n_words, config)
    with closing(w2v.open_engine(stream, config, folder / "text")) as engine:
        begin = time.perf_counter()
        for epoch in range(config.epochs):
            engine.train(engine.parts, weights, epoch, lambda words, rate: None)
        return weights.input, time.perf_counter() - begin


class _Lists:
    """The lines of a corpus as lists of words, made as they are asked for, like gensim's ``LineSentence``."""

    def __init__(self, corpus: PreparedCorpus) -> None:
        self._corpus = corpus

    def __iter__(self) -> Iterator[list[str]]:
        words, ids, lines = self._corpus.words, self._corpus.ids, self._corpus.lines.tolist()
        for begin, end in pairwise(lines):
            for first in range(begin, end, _LONGEST):
                yield [words[word] for word in ids[first : min(first + _LONGEST, end)].tolist()]


def _lists(job: Job) -> Trained:
    from gensim.models import Word2Vec

    corpus, config = job.corpus, job.config
    model = Word2Vec(
        vector_size=config.dim, window=config.window, negative=config.negative, sample=config.sample, sg=0, hs=0,
        ns_exponent=config.ns_exponent, alpha=config.alpha, min_alpha=config.min_alpha, min_count=config.min_count,
        cbow_mean=int(config.cbow_mean), shrink_windows=config.shrink_windows, seed=config.seed, workers=config.workers,
    )  # fmt: skip
    model.build_vocab_from_freq(
        dict(zip(corpus.words, corpus.counts.tolist(), strict=True)), corpus_count=corpus.n_lines
    )
    begin = time.perf_counter()
    model.train(_Lists(corpus), total_examples=model.corpus_count, epochs=config.epochs)
    seconds, keys = time.perf_counter() - begin, model.wv
    return Trained(job.total / seconds, peak_memory(), lambda: job.vectors(keys[corpus.words[: job.n_words]]))


def _word2vec_c(job: Job) -> Trained:
    assert job.program is not None
    assert job.text is not None
    output = job.folder / "vectors.bin"
    span = word2vec_c.train(job.program, job.text, output, job.config)
    word2vec_c.check_complete(span, job.total, job.config)
    words = span.share * job.total / span.seconds
    return Trained(words, span.memory, lambda: job.vectors(word2vec_c.read_matrix(output, job.n_words)))
