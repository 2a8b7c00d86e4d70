"""CBOW with negative sampling by gensim's compiled file-mode kernel, driven part by part.

``Word2Vec.train(corpus_file=...)`` has flaws that its caller cannot fix: with W workers its learning rate falls only
1/W of the way in an epoch; lines near the borders between workers are trained twice or never; it reports nothing
before the epoch's end; an error in a worker blocks it forever. So the kernel (``train_epoch_cbow``) is called
directly, on one small file per part, by as many threads as there are workers: each part starts at the learning rate of
its own first word, and every word is trained exactly once per epoch, with any number of workers.

The kernel itself has another flaw (gensim 4.4, ``next_batch``): it reads whole lines until it has over 10,000 words,
trains on the first 10,000 left by subsampling, and drops the rest. So a line of words that are not in the vocabulary is
inserted wherever the next line would not fit, to fill the batch.
"""

import copy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.storage.arrays import Array
from greenadapt.vectors.engines import (
    Stream,
    Weights,
    cuts,
    keep_thresholds,
    learning_rate,
    never,
    require_finite,
    require_learning,
    sample_lost,
    train_parts,
)

BATCH = 9_999  # words; the kernel reads on until it has over 10,000, and has room for 10,000
_FILLER = b"x "  # a word that is not a number


@dataclass(frozen=True)
class Part:
    """A part of the text for one thread at a time: its file, and the trained words before and in it."""

    number: int
    path: Path
    before: int
    words: int
    filler: int
    """Words of the file that are not trained."""


class GensimEngine:
    """The ``Engine`` that calls gensim; its text lies under ``folder`` until ``close``.

    gensim's words are the numbers as decimal text, so the text is short and holds no odd characters.
    """

    note = ""

    def __init__(self, stream: Stream, config: W2VConfig, folder: Path) -> None:
        from gensim.models.word2vec_corpusfile import CythonVocab

        self._stream, self._config = stream, config
        self._folder = folder
        self._total = stream.total
        self._model = _model(stream.counts, config)
        self._vocabulary = CythonVocab(self._model.wv)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._parts = list(write_parts(stream, folder))

    def train_epoch(
        self,
        weights: Weights,
        epoch: int,
        advance: Callable[[int, float], None],
        *,
        first: int = 0,
        stop: Callable[[], bool] = never,
    ) -> int:
        """See ``Engine``; the threads share the tables without locks (Hogwild).

        Raises ``InputError`` if training diverges.
        """
        self._model.wv.vectors, self._model.syn1neg = weights.input, weights.output
        parts = self._parts[first:]
        n_trained = train_parts(parts, lambda part: self._train_part(part, epoch), self._config.workers, advance, stop)
        require_learning(epoch, *sample_lost(self._stream, weights, self._config))
        for table in (weights.input, weights.output):
            require_finite(epoch, table)
        return first + n_trained if n_trained < len(parts) else 0

    def _train_part(self, part: Part, epoch: int) -> tuple[int, float]:
        """Train on one part; returns its number of words and the learning rate at its end."""
        from gensim.matutils import zeros_aligned
        from gensim.models.word2vec_corpusfile import train_epoch_cbow

        model = copy.copy(self._model)  # shares the tables, with its own rates and random numbers
        model.alpha = learning_rate(self._config, epoch, part.before / self._total)
        model.min_alpha = learning_rate(self._config, epoch, (part.before + part.words) / self._total)
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
    """gensim's model with vocabulary, subsampling thresholds and table of negatives, and no weights yet.

    The formulas are those of ``Word2Vec.prepare_vocab`` and ``make_cum_table``, which take 11 s for a million words, as
    ``build_vocab_from_freq`` does, which would also allocate the weights a second time.
    """
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=config.dim, window=config.window, negative=config.negative, sample=config.sample,
        cbow_mean=int(config.cbow_mean), shrink_windows=config.shrink_windows, sg=0, hs=0, epochs=1, workers=1,
    )  # fmt: skip
    model.wv.index_to_key = list(map(str, range(len(counts))))
    model.wv.key_to_index = {word: row for row, word in enumerate(model.wv.index_to_key)}
    model.wv.expandos["sample_int"] = keep_thresholds(counts, config.sample)
    model.cum_table = _negatives(counts, config.ns_exponent)
    return model


def _negatives(counts: Array, exponent: float) -> Array:
    """Cumulative distribution of negatives, proportional to count^``exponent``, uint32 ``(n_words,)`` up to 2³¹−1."""
    cumulative = np.cumsum([count**exponent for count in counts.tolist()])
    table: Array = np.rint(cumulative / cumulative[-1] * (2**31 - 1)).astype(np.uint32)
    return table


def write_parts(stream: Stream, folder: Path) -> Iterator[Part]:
    """Write the trained words as text files of about ``_PART`` words; a line without trained words is left out.

    A line of more than ``BATCH`` words is cut after every ``BATCH`` words, rare ones included.
    """
    digits = len(str(stream.n_words))
    # Row n_words is the end of a line; entries are padded with zero bytes, which are deleted.
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
    """The trained words of ``ids[begin:end]``, at most ``BATCH`` at a time, and where in them lines end."""
    ids = np.asarray(stream.ids[begin:end])
    first, last = np.searchsorted(stream.lines, [begin, end])
    borders = np.concatenate([[begin], stream.lines[first:last], [end]])
    long = np.flatnonzero(np.diff(borders) > BATCH)
    cuts = [np.arange(borders[i] + BATCH, borders[i + 1], BATCH) for i in long]
    ends = np.concatenate([borders, *cuts]) - begin
    kept = ids < stream.n_words
    ids = ids[kept]
    line_ends = np.unique(np.concatenate([[0], np.cumsum(kept)])[ends])[1:]
    start = 0
    while start < len(ids):
        in_batch = line_ends[slice(*np.searchsorted(line_ends, [start, start + BATCH], side="right"))]
        stop = int(in_batch[-1])
        yield ids[start:stop], in_batch - start
        start = stop
