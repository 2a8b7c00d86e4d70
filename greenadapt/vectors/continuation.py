"""Train CBOW vectors on when text was added to their corpus.

The rule: the new lines and a sample of the old ones, ``OLD_PER_NEW`` times as many words, are read as often as a full
run reads its text, at ``RATE`` times its learning rate, which falls to the same end. Rows of words with a row go on
from where they are, in both tables of word2vec; new words start as in a full run. Counts for subsampling and negative
samples are those of the whole corpus.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.storage.arrays import Array, ArrayFile, Int64Array, Streamed, offsets_of, write_arrays
from greenadapt.vectors.engines import Stream, Weights
from greenadapt.vectors.word_vectors import WordVectors

if TYPE_CHECKING:
    from greenadapt.corpus.words import PreparedCorpus

OLD_PER_NEW = 1
"""Words of old text that are read again per word of new text."""
RATE = 0.5
"""Learning rate at the start, as a share of a full run's."""
_BLOCK_LINES = 1 << 14


@dataclass(frozen=True, eq=False)
class EarlierVectors:
    """Vectors of an earlier state of a corpus."""

    vectors: WordVectors
    output: Array
    """The output table of word2vec, float32, ``(n_words, dim)``."""
    new_lines: Int64Array
    """Lines of the corpus that they have not seen, ascending, ``(n_new,)``."""
    digest: str
    """Hash of their content."""

    def config(self, config: W2VConfig) -> W2VConfig:
        """``config`` of a full run with the rate of an update."""
        return replace(config, alpha=max(RATE * config.alpha, config.min_alpha))

    def fill(self, words: list[str], weights: Weights) -> None:
        """Copy the rows of ``words`` that have one into ``weights``."""
        rows = np.array([self.vectors.index.get(word, -1) for word in words], np.int64)
        known = np.flatnonzero(rows >= 0)
        weights.input[known] = self.vectors.matrix[rows[known]]
        weights.output[known] = self.output[rows[known]]

    def stream(self, corpus: "PreparedCorpus", counts: Int64Array, seed: int, path: Path) -> Stream:
        """The text to train on, written to ``path``; ``counts`` are those of the trained words in the whole corpus."""
        lengths = np.diff(corpus.lines)
        chosen = np.zeros(corpus.n_lines, bool)
        chosen[self.new_lines] = True
        n_new = int(lengths[chosen].sum())
        share = OLD_PER_NEW * n_new / max(corpus.n_tokens - n_new, 1)
        chosen |= np.random.default_rng([seed, corpus.n_lines]).random(corpus.n_lines) < share
        lines = offsets_of(lengths[chosen])
        ids = Streamed((int(lines[-1]),), np.dtype(np.int32), _lines(corpus, np.flatnonzero(chosen)))
        write_arrays(path, {"ids": ids, "lines": lines})
        text = ArrayFile(path)
        return Stream(text["ids"], lines, counts, int(np.count_nonzero(text["ids"] < len(counts))))


def _lines(corpus: "PreparedCorpus", chosen: Int64Array) -> Iterator[Array]:
    """The words of the ``chosen`` lines, block by block."""
    for begin in range(0, len(chosen), _BLOCK_LINES):
        for line in chosen[begin : begin + _BLOCK_LINES].tolist():
            yield corpus.ids[corpus.lines[line] : corpus.lines[line + 1]]
