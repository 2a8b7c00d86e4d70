"""CBOW with negative sampling on chunks of consecutive words, compiled by numba.

**Objective.** Position i has the words C_i of its window as its context, their mean h_i = Σ_{j in C_i} v_j / |C_i|, or
their sum without ``cbow_mean``, and its own word w_i. It shares m = 8 negatives n_1 … n_m, drawn with replacement from
P(w) ∝ count(w)^``ns_exponent``, with seven other positions of its chunk of 64, each eight words from the next (nearer
in a short chunk, the last of what is read at once). With k = ``negative`` and scores cut off at ±6,
s(x) = min(max(x, -6), 6), the objective to maximise is

    L = Σ_i [ log σ(s(h_i · o_{w_i})) + (k / m) Σ_{j: n_j ≠ w_i} log σ(s(-h_i · o_{n_j})) ].

Its expectation over the draws is that of word2vec (Mikolov et al., arXiv 1301.3781 and 1310.4546), which draws k
negatives for each position. Subsampling of frequent words, window widths, uniform from 1 to ``window``, and the
learning rate, which falls with the words read, here some thousand at a time, are word2vec's; learning nothing beyond ±6
is gensim's. A window ends with its line, or, if a line is longer than what is read at once, with that part.

**Steps.** A group is the eight positions that share negatives. Output rows are changed by α ∂L/∂o of a group, and then
the next group follows. Input rows do not change within a chunk; then each word of a context gets α ∂L/∂h_i, as in
word2vec, or the true gradient α ∂L/∂h_i / |C_i| of a mean (``gradient="corrected"``, İrsoy et al., arXiv 2012.15332).

**Why it is as good.** Neighbours have nearly the same context: a negative that is pushed away from eight of them is
pushed eight times the same way, and a word meets the same negatives again and again. Positions eight words apart
share little of their contexts, so steps vary about as much as with separate negatives per position. Fewer negatives,
or the same ones for several groups of a chunk, give worse vectors.

**Why it is fast.** All h of a chunk are differences of one running sum over its input rows, and all changes of input
rows are one running sum of gradients, added where a window begins and taken away where it ends, so that each row is
read and written once per chunk, not once per neighbour. Eight positions times eight negatives are small products of
matrices: each row that is read is used many times. Rows are prefetched a group or a chunk ahead.

Threads share the tables without locks (Hogwild), each working on its own parts.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.storage.arrays import Array
from greenadapt.vectors.engines import (
    Stream,
    StreamPart,
    Weights,
    keep_thresholds,
    learning_rate,
    never,
    noise_weights,
    padded,
    require_finite,
    require_learning,
    stream_parts,
    train_parts,
)
from greenadapt.vectors.engines.chunks import NEGATIVES, WHY_PLAIN, Noise, Settings, TextPart, alias_table, train_part


class FastEngine:
    """The ``Engine`` of this module."""

    note = f"the fast engine runs slower, in plain numba: {WHY_PLAIN}" if WHY_PLAIN else ""

    def __init__(self, stream: Stream, config: W2VConfig) -> None:
        self._stream, self._config = stream, config
        self._ids = np.asarray(stream.ids).view()
        self._ids.flags.writeable = False  # like a memory-mapped file, so that only one version is compiled
        self._noise = Noise(
            keep_thresholds(stream.counts, config.sample).astype(np.uint64),
            *alias_table(noise_weights(stream.counts, config.ns_exponent)),
        )
        self._settings = Settings(
            config.window,
            config.shrink_windows,
            config.cbow_mean,
            config.gradient == "corrected",
            config.negative / NEGATIVES,
        )

    def train_epoch(
        self,
        weights: Weights,
        epoch: int,
        advance: Callable[[int, float], None],
        *,
        first: int = 0,
        stop: Callable[[], bool] = never,
    ) -> int:
        """See ``Engine``; raises ``InputError`` where training diverges."""
        parts = self.parts[first:]
        n_trained = self.train_parts(parts, weights, epoch, advance, stop=stop)
        return first + n_trained if n_trained < len(parts) else 0

    @cached_property
    def parts(self) -> Sequence[StreamPart]:
        """The parts of an epoch, in order."""
        return list(stream_parts(self._stream))

    def train_parts(
        self,
        parts: Sequence[StreamPart],
        weights: Weights,
        epoch: int,
        advance: Callable[[int, float], None],
        *,
        stop: Callable[[], bool] = never,
    ) -> int:
        """Train on ``parts`` of epoch number ``epoch``; returns how many were trained, the first ones.

        Raises ``InputError`` where training diverges.
        """
        tables = padded(weights.input), padded(weights.output)
        n_trained = train_parts(
            parts, lambda part: self._train_part(part, tables, epoch), self._config.workers, advance, stop
        )
        for table, trained in zip((weights.input, weights.output), tables, strict=True):
            if trained is not table:
                table[:] = trained[:, : table.shape[1]]
            require_finite(epoch, table)
        return n_trained

    def _train_part(self, part: StreamPart, tables: tuple[Array, Array], epoch: int) -> tuple[int, float]:
        """Train on one part; returns its number of words and the learning rate at its end."""
        total = self._stream.total
        rates = [learning_rate(self._config, epoch, words / total) for words in (part.before, part.before + part.words)]
        text = TextPart(self._ids, part.borders, part.words)
        seed = np.random.SeedSequence([self._config.seed, epoch, part.number]).generate_state(1, np.uint64)[0] | 1
        learned, likely = train_part(text, tables, self._noise, self._settings, (rates[0], rates[1]), seed)
        require_learning(epoch, learned, learned - likely)
        return part.words, rates[1]

    def close(self) -> None:
        """Does nothing: there are no temporary files."""
