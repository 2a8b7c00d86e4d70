"""Rows from a word's form and its contexts together, after BERTRAM (Schick and Schütze, arXiv 1910.07181).

A frequent word is known by its contexts, a rare one by its form, the pieces that it is spelled with. BERTRAM trains a
network that weighs the two; here a ridge regression does, on features in which the word's count weighs them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve

from greenadapt.storage.arrays import Array, FloatArray
from greenadapt.vectors.neighbours import unit_rows
from greenadapt.vectors.piece_rows import PieceIds, mean_of_pieces, rescaled

_BLOCK = 4096  # words whose features are in memory at once
GATE = 50
"""Occurrences at which contexts count as much as form."""


@dataclass(frozen=True, eq=False)
class FormMap:
    """A fitted map from the features of words to rows: μ + (φ − φ̄) W, rescaled to the length ``norm``.

    The features of a word that occurs n times, with the unit word vector x and, in units of ``norm``, the rows p₁ and
    p₂ of its first and last piece and the mean p̄ of all of them, are, with g = n / (n + 50),
    φ = [g x, ½ (1 − g) x, p̄, (1 − g) p̄, ½ p₁, ½ p₂].
    """

    weights: FloatArray
    """W, (n_features, dim)."""
    offset: FloatArray
    """μ − φ̄ W, (dim,)."""
    norm: float

    def rows(self, vectors: Array, counts: Array, pieces: PieceIds, embedding: Array) -> FloatArray:
        """Rows (n, dim), float32, of n words, given their ``vectors`` (n, source_dim), ``counts`` (n,) and the ids of
        their ``pieces``, rows of ``embedding`` (n_rows, dim).
        """
        return rescaled(self.unscaled(vectors, counts, pieces, embedding), self.norm)

    def unscaled(self, vectors: Array, counts: Array, pieces: PieceIds, embedding: Array) -> FloatArray:
        """The same as ``rows`` before they are rescaled: nearest to the targets of the fit by squared distance."""
        blocks = _features(vectors, counts, pieces, embedding, self.norm)
        return np.concatenate([block @ self.weights + self.offset for block in blocks])


def fit_form(vectors: Array, counts: Array, pieces: PieceIds, embedding: Array, targets: Array, norm: float) -> FormMap:
    """Fit the map on n words with rows of their own, ``targets`` (n, dim): argmin_W Σ‖y − μ − (φ − φ̄) W‖² + λ‖W‖².

    λ is the sum over the words of a centred feature's square, on average over the features. ``pieces`` are those that
    each word would be cut into without its row, so that the words of the fit look like new ones; the other arguments
    are those of ``FormMap.rows``. Computed in float64, a block of words at a time.
    """
    n, dim = targets.shape
    size = 2 * vectors.shape[1] + 4 * dim
    gram, cross = np.zeros((size, size)), np.zeros((size, dim))
    features_sum, targets_sum = np.zeros(size), np.zeros(dim)
    begin = 0
    for block in _features(vectors, counts, pieces, embedding, norm):
        features = block.astype(np.float64)
        rows = np.asarray(targets[begin : begin + len(block)], np.float64)
        gram += features.T @ features
        cross += features.T @ rows
        features_sum += features.sum(axis=0)
        targets_sum += rows.sum(axis=0)
        begin += len(block)
    mean, row_mean = features_sum / n, targets_sum / n
    gram -= n * np.outer(mean, mean)
    cross -= n * np.outer(mean, row_mean)
    gram[np.diag_indices(size)] += np.trace(gram) / size or 1.0  # without spread every W is as good
    weights = solve(gram, cross, assume_a="pos", overwrite_a=True, overwrite_b=True)
    return FormMap(weights.astype(np.float32), (row_mean - mean @ weights).astype(np.float32), norm)


def _features(vectors: Array, counts: Array, pieces: PieceIds, embedding: Array, norm: float) -> Iterator[FloatArray]:
    """φ of each word, in blocks (b, n_features), float32."""
    for begin in range(0, len(vectors), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        own = pieces[block]
        units = unit_rows(vectors[block])
        gate = (counts[block] / (counts[block] + GATE)).astype(np.float32)[:, None]
        means = mean_of_pieces(own, embedding) / np.float32(norm)
        first, last = (np.asarray(embedding[[ids[i] for ids in own]], np.float32) / np.float32(norm) for i in (0, -1))
        yield np.hstack([gate * units, (1 - gate) / 2 * units, means, (1 - gate) * means, first / 2, last / 2])
