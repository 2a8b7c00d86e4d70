"""CBOW with negative sampling on chunks of consecutive words, compiled by numba.

**Objective.** Position i has the words C_i of its window as its context, their mean h_i = Σ_{j in C_i} v_j / |C_i|, or
their sum without ``cbow_mean``, and its own word w_i. Four consecutive positions share m = 4 negatives n_1 … n_m, drawn
with replacement from P(w) ∝ count(w)^``ns_exponent``. With k = ``negative``, what is made larger is

    L = Σ_i [ log σ(h_i · o_{w_i}) + (k / m) Σ_{j: n_j ≠ w_i} log σ(-h_i · o_{n_j}) ].

Its expectation over the draws is that of word2vec (Mikolov et al., arXiv 1301.3781 and 1310.4546), which draws k
negatives for each position. Subsampling of frequent words, the width of each window, uniform from 1 to ``window``, and
the learning rate, which falls with the words met, here some thousand at a time, are word2vec's own. A window ends where
its line does, and where a line is longer than what is read at once, there.

**Steps.** Output rows are changed by α ∂L/∂o as soon as it is known: those of a chunk's own words one after the other,
then those of each four positions' negatives. Input rows stay as they are for a chunk of 32 positions; then each word of
a context gets α ∂L/∂h_i, as in word2vec, or the true gradient α ∂L/∂h_i / |C_i| of a mean (``gradient="corrected"``,
İrsoy et al., arXiv 2012.15332).

**Why it is fast.** All h of a chunk are differences of one running sum over its input rows, and all changes of input
rows are one running sum of differences, so that each row is read and written once a chunk, not once a neighbour. Four
positions times four negatives are small products of matrices: each row that is read is used four times.

Threads share the tables without locks (Hogwild), each on parts of its own.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.engines import Stream, Weights, learning_rate
from greenadapt.engines.chunks import GROUP, Noise, Settings, Text, alias_table, train_part
from greenadapt.engines.noise import keep_thresholds, noise_weights
from greenadapt.engines.parts import Span, spans
from greenadapt.errors import InputError

_ROWS = 1 << 14  # of a table that are looked through at once


class FastEngine:
    """The ``Engine`` of this module."""

    def __init__(self, stream: Stream, config: W2VConfig) -> None:
        self._stream, self._config = stream, config
        self._spans = list(spans(stream))
        self._noise = Noise(
            keep_thresholds(stream.counts, config.sample).astype(np.uint64),
            *alias_table(noise_weights(stream.counts, config.ns_exponent)),
        )
        self._settings = Settings(
            config.window,
            config.shrink_windows,
            config.cbow_mean,
            config.gradient == "corrected",
            config.negative / GROUP,
        )

    def train_epoch(self, weights: Weights, epoch: int, advance: Callable[[int, float], None]) -> None:
        """Train every part once, ``workers`` at a time; raises ``InputError`` where the numbers became none."""
        pool = ThreadPoolExecutor(self._config.workers)
        try:
            for done in as_completed([pool.submit(self._train_span, span, weights, epoch) for span in self._spans]):
                advance(*done.result())
        finally:
            pool.shutdown(cancel_futures=True)
        for table in (weights.input, weights.output):
            if not all(np.isfinite(table[begin : begin + _ROWS]).all() for begin in range(0, len(table), _ROWS)):
                raise _diverged(epoch)

    def _train_span(self, span: Span, weights: Weights, epoch: int) -> tuple[int, float]:
        """Train on one part; returns its number of words and the learning rate at its end."""
        total = self._stream.total
        rates = [learning_rate(self._config, epoch, words / total) for words in (span.before, span.before + span.words)]
        text = Text(np.asarray(self._stream.ids), span.borders, span.words)
        seed = np.random.SeedSequence([self._config.seed, epoch, span.number]).generate_state(1, np.uint64)[0] | 1
        tables = (weights.input, weights.output)
        score = train_part(text, tables, self._noise, self._settings, (rates[0], rates[1]), seed)
        if not np.isfinite(score):
            raise _diverged(epoch)
        return span.words, rates[1]

    def close(self) -> None:
        """There is nothing to remove."""


def _diverged(epoch: int) -> InputError:
    return InputError(
        f"training diverged in epoch {epoch + 1}: the vectors are no finite numbers any more",
        "use a lower --alpha; the checkpoint of the last epoch is kept",
    )
