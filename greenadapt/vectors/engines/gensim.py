"""CBOW with negative sampling by gensim's compiled file-mode kernel, driven part by part.

``Word2Vec.train(corpus_file=...)`` has flaws that a caller cannot avoid: with W workers the learning rate falls only
1/W of the way in an epoch; lines between the ranges of workers are trained twice or never; progress is reported only at
the end of an epoch; an error in a worker blocks forever. This engine therefore calls the kernel (``train_epoch_cbow``)
directly, on a small file per part, from one thread per worker: a part starts at the learning rate of its first word,
and every word is trained exactly once per epoch, for any number of workers.

The kernel has another flaw (gensim 4.4, ``next_batch``): it reads whole lines until it has over 10,000 words, trains on
the first 10,000 after subsampling, and drops the others. A line of words outside the vocabulary therefore fills a batch
if the next line would not fit.
"""

import copy
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.store.arrays import Array
from greenadapt.vectors.engines import (
    NOISE_EXPONENT,
    Advance,
    Stop,
    Stream,
    Weights,
    cuts,
    keep_thresholds,
    learning_rate,
    require_finite,
    train_in_threads,
)

BATCH = 9_999  # words; the kernel reads until it has over 10,000 words, and has room for 10,000
_FILLER = b"x "  # a word that is not a number


@dataclass(frozen=True)
class Part:
    """A part of the text, trained by one thread: its file, and the trained words before it and in it."""

    number: int
    path: Path
    before: int
    words: int
    filler: int
    """Number of words in the file that are not trained."""


class GensimEngine:
    """The ``Engine`` that calls gensim; ``folder`` holds its text until ``close``.

    gensim's words are word numbers in decimal notation: short, and without special characters.
    """

    def __init__(self, stream: Stream, config: W2VConfig, folder: Path) -> None:
        from gensim.models.word2vec_corpusfile import CythonVocab

        self._stream, self._config = stream, config
        self._folder = folder
        self._model = _model(stream.counts, config)
        self._vocabulary = CythonVocab(self._model.wv)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.parts = list(write_parts(stream, folder))

    def train(
        self, parts: Sequence[Part], weights: Weights, epoch: int, advance: Advance, *, stop: Stop = lambda: False
    ) -> int:
        """Train as ``Engine`` says; threads share the tables without locks (Hogwild)."""
        self._model.wv.vectors, self._model.syn1neg = weights.input, weights.output
        n_trained = train_in_threads(
            parts, lambda part: self._train_part(part, epoch), self._config.workers, advance, stop
        )
        for table in weights:
            require_finite(epoch, table)
        return n_trained

    def _train_part(self, part: Part, epoch: int) -> tuple[int, float]:
        """Train on a part; returns its number of words and the final learning rate."""
        from gensim.matutils import zeros_aligned
        from gensim.models.word2vec_corpusfile import train_epoch_cbow

        model = copy.copy(self._model)  # shares the tables, but not learning rates and random numbers
        total = self._stream.total
        model.alpha = learning_rate(self._config, epoch, part.before / total)
        model.min_alpha = learning_rate(self._config, epoch, (part.before + part.words) / total)
        model.random = np.random.RandomState([self._config.seed, epoch, part.number])
        memory = [zeros_aligned(model.vector_size, dtype=np.float32) for _ in range(2)]
        expected = part.words + part.filler
        _, _, read = train_epoch_cbow(
            model, str(part.path), 0, self._vocabulary, 0, None, expected, *memory, compute_loss=False
        )
        if read != expected:
            raise RuntimeError(f"{part.path}: gensim read {read} words of {expected}")
        return part.words, model.min_alpha

    def close(self) -> None:
        """Remove the text."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _model(counts: Array, config: W2VConfig) -> Any:
    """Create gensim's model with vocabulary, subsampling thresholds and table of negatives, but no weights.

    Uses the formulas of ``Word2Vec.prepare_vocab`` and ``make_cum_table``, which take 11 s for a million words;
    ``build_vocab_from_freq`` is as slow and also allocates the weights again.
    """
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=config.dim, window=config.window, negative=config.negative, sample=config.sample,
        cbow_mean=1, shrink_windows=True, sg=0, hs=0, epochs=1, workers=1,
    )  # fmt: skip
    model.wv.index_to_key = list(map(str, range(len(counts))))
    model.wv.key_to_index = {word: row for row, word in enumerate(model.wv.index_to_key)}
    model.wv.expandos["sample_int"] = keep_thresholds(counts, config.sample)
    # Cumulative distribution of negatives, proportional to count^0.75, up to 2³¹−1.
    cumulative = np.cumsum([count**NOISE_EXPONENT for count in counts.tolist()])
    model.cum_table = np.rint(cumulative / cumulative[-1] * (2**31 - 1)).astype(np.uint32)
    return model


def write_parts(stream: Stream, folder: Path) -> Iterator[Part]:
    """Write the trained words as text files of about ``_PART`` words, without lines that have no trained words.

    A line of more than ``BATCH`` words is cut after every ``BATCH`` words, including rare words.
    """
    digits = len(str(stream.n_words))
    # Row n_words is the end of a line; the zero bytes that pad entries are deleted below.
    text = np.array([*(f"{word} " for word in range(stream.n_words)), "\n"], dtype=f"S{digits + 1}")
    before = 0
    for number, (begin, end) in enumerate(cuts(stream)):
        batches = list(_batches(stream, begin, end))
        if not batches:
            continue
        pieces = [text[np.insert(ids, ends, stream.n_words)].tobytes().translate(None, b"\0") for ids, ends in batches]
        fillers = [BATCH + 2 - len(ids) for ids, _ in batches[:-1]]
        path = folder / f"{number:06}.txt"
        with open(path, "wb") as file:
            for piece, filler in zip(pieces, [*fillers, 0], strict=True):
                file.write(piece)
                file.write(_FILLER * filler + b"\n" if filler else b"")
        words = sum(len(ids) for ids, _ in batches)
        yield Part(number, path, before, words, sum(fillers))
        before += words


def _batches(stream: Stream, begin: int, end: int) -> Iterator[tuple[Array, Array]]:
    """Yield the trained words of ``ids[begin:end]``, at most ``BATCH`` at a time, and the ends of their lines."""
    ids = np.asarray(stream.ids[begin:end])
    begin_line, end_line = np.searchsorted(stream.lines, [begin, end])
    borders = np.concatenate([[begin], stream.lines[begin_line:end_line], [end]])
    long_lines = np.flatnonzero(np.diff(borders) > BATCH)
    cuts = [np.arange(borders[i] + BATCH, borders[i + 1], BATCH) for i in long_lines]
    ends = np.concatenate([borders, *cuts]) - begin
    is_trained = ids < stream.n_words
    ids = ids[is_trained]
    line_ends = np.unique(np.concatenate([[0], np.cumsum(is_trained)])[ends])[1:]
    start = 0
    while start < len(ids):
        in_batch = line_ends[slice(*np.searchsorted(line_ends, [start, start + BATCH], side="right"))]
        stop = int(in_batch[-1])
        yield ids[start:stop], in_batch - start
        start = stop
