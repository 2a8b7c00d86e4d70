"""CBOW with negative sampling on chunks of consecutive words, compiled by numba.

**Objective.** Position i has a word w_i and the words C_i of its window as context, with the mean
h_i = Σ_{j in C_i} v_j / |C_i|. It shares m = 8 negatives n_1 … n_m, drawn with
replacement from P(w) ∝ count(w)^0.75, with seven other positions of its chunk of 64, eight words apart (less
in a short chunk at the end of a buffer). With k = ``negative`` and scores clipped to ±6, s(x) = min(max(x, -6), 6), the
objective to maximise is

    L = Σ_i [ log σ(s(h_i · o_{w_i})) + (k / m) Σ_{j: n_j ≠ w_i} log σ(s(-h_i · o_{n_j})) ].

Its expectation over the draws is that of word2vec (Mikolov et al., arXiv 1301.3781 and 1310.4546), which draws k
negatives for each position. Subsampling of frequent words, window widths, uniform from 1 to ``window``, and the
learning rate, which here is updated every few thousand words, are as in word2vec; learning nothing beyond ±6 is as in
gensim. A window ends with its line, or with the buffer if the line is longer.

**Steps.** A group is the eight positions that share negatives. Output rows are updated by α ∂L/∂o after each group.
Input rows are updated after each chunk: each word of a context by α ∂L/∂h_i, as in word2vec (the true gradient of a
mean is that divided by |C_i|, arXiv 2012.15332).

**Quality.** Adjacent positions have nearly the same context, so that shared negatives would be pushed in the same
direction repeatedly, and a word would be trained with the same negatives. Positions eight words apart share little
context, and steps vary about as much as with separate negatives. Fewer negatives, or the same negatives for several
groups of a chunk, give worse vectors.

**Speed.** All h of a chunk are differences of a cumulative sum of input rows, and all changes of input rows are a
cumulative sum of gradients, added at the begin of a window and subtracted at its end: each row is read and written once
per chunk, not once per neighbour. Eight positions times eight negatives are small matrix products, which use each row
many times. Sums are made for a few columns at a time, and gradients replace h that are no longer needed.
Rows are prefetched a group or a chunk ahead, two or four lines at each step.

Threads share the tables without locks (Hogwild), each working on its own parts.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.store.arrays import Array
from greenadapt.vectors.engine.chunks import NEGATIVES, Noise, Settings, TextPart, alias_table, train_part
from greenadapt.vectors.engine.stream import (
    Advance,
    Stop,
    Stream,
    StreamPart,
    Weights,
    keep_thresholds,
    learning_rate,
    noise_weights,
    pad_rows,
    require_finite,
    require_learning,
    stream_parts,
)


class LocalEngine:
    """Trains with threads, ``config.workers`` of them; see the module.

    With one worker, the result of a part depends only on the weights before it, the configuration, and the numbers of
    epoch and part, so that a resumed run gives the same result as an uninterrupted run.
    """

    def __init__(self, stream: Stream, config: W2VConfig) -> None:
        self._stream, self._config = stream, config
        self._ids = np.asarray(stream.ids).view()
        self._ids.flags.writeable = False  # like a memory-mapped file, so that only one version is compiled
        self._noise = Noise(keep_thresholds(stream.counts, config.sample), *alias_table(noise_weights(stream.counts)))
        self._settings = Settings(config.window, config.negative / NEGATIVES)

    @cached_property
    def parts(self) -> Sequence[StreamPart]:
        """The parts of the text, in order; made only if they are read."""
        return list(stream_parts(self._stream))

    def train(
        self, parts: Sequence[StreamPart], weights: Weights, epoch: int, advance: Advance, *, stop: Stop = lambda: False
    ) -> int:
        """Train ``weights`` in place on ``parts``, consecutive ones, in epoch number ``epoch`` (from 0).

        Calls ``advance`` after each part. Once ``stop()`` is true, finishes the parts that have begun. Returns the
        number of trained parts, the first ones. Raises ``InputError`` if training diverges.
        """
        tables = (pad_rows(weights.input), pad_rows(weights.output))
        pool = ThreadPoolExecutor(self._config.workers)
        try:
            futures = [pool.submit(self._train_part, part, tables, epoch) for part in parts]
            for finished in futures:  # in order, so that progress does not depend on threads
                if not finished.cancelled():
                    advance(*finished.result())
                    if stop():
                        for future in reversed(futures):  # parts begin in order: none after a cancelled part has begun
                            future.cancel()
        finally:
            pool.shutdown(cancel_futures=True)
        for table, trained in zip(weights, tables, strict=True):
            if trained is not table:
                table[:] = trained[:, : table.shape[1]]
            require_finite(epoch, table)
        return sum(not future.cancelled() for future in futures)

    def _train_part(self, part: StreamPart, tables: tuple[Array, Array], epoch: int) -> tuple[int, float]:
        """Train on a part; returns its number of words and the final learning rate."""
        total = self._stream.total
        first, last = (learning_rate(self._config, epoch, (part.before + n) / total) for n in (0, part.words))
        text = TextPart(self._ids, part.borders, part.words)
        seed = np.random.SeedSequence([self._config.seed, epoch, part.number]).generate_state(1, np.uint64)[0] | 1
        learned, likely = train_part(text, tables, self._noise, self._settings, (first, last), seed)
        require_learning(epoch, learned, learned - likely)
        return part.words, last
