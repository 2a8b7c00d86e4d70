"""Nearest rows of a model, nearest word vectors, and vectors projected on a plane."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import require_whole
from greenadapt.store.arrays import Array, FloatArray, Int64Array, row_blocks
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter
from greenadapt.vectors.word_vectors import WordVectors


@dataclass(frozen=True)
class Neighbours:
    """The nearest entries of a word in a view: ``(label, cosine)``, nearest first."""

    word: str
    view: str
    neighbours: tuple[tuple[str, float], ...]
    count: int | None = None
    """Count of the word in the corpus; ``None`` if unknown."""


def unit_rows(vectors: Array) -> FloatArray:
    """``vectors`` ``(n, dim)`` in float32, each row divided by its length; a row of zeros stays zero."""
    rows = np.array(vectors, np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(norms > 0, norms, 1)
    return rows


def find_nearest(
    queries: Array, candidates: Array, k: int, exclude: Int64Array | None = None
) -> tuple[Int64Array, FloatArray]:
    """The ``k`` rows of ``candidates`` ``(n, dim)`` with the highest cosine to each of ``queries`` ``(q, dim)``.

    ``exclude`` ``(q, m)`` holds the candidate rows to exclude per query, −1 for none. Returns indices and cosines,
    ``(q, k)``, nearest first, equal cosines by index (ties for the last place are broken arbitrarily). If fewer than
    ``k`` rows remain, the index is −1 and the cosine −inf.
    """
    unit = unit_rows(queries)
    indices: Int64Array = np.full((len(unit), k), -1, np.int64)
    cosines: FloatArray = np.full((len(unit), k), -np.inf, np.float32)
    begin = 0
    for raw in row_blocks(candidates):
        block = unit_rows(raw)
        scores = unit @ block.T
        if exclude is not None:
            query, slot = np.nonzero((exclude >= begin) & (exclude < begin + len(block)))
            scores[query, exclude[query, slot] - begin] = -np.inf
        # Sort only the k best of a block, which can have thousands of rows.
        k_best = min(k, len(block))
        best = np.argpartition(-scores, k_best - 1, axis=1)[:, :k_best]
        best_scores = np.take_along_axis(scores, best, axis=1)
        indices = np.concatenate([indices, np.where(np.isneginf(best_scores), -1, best + begin)], axis=1)
        cosines = np.concatenate([cosines, best_scores], axis=1)
        order = np.lexsort((indices, -cosines), axis=1)[:, :k]
        indices = np.take_along_axis(indices, order, axis=1)
        cosines = np.take_along_axis(cosines, order, axis=1)
        begin += len(block)
    return indices, cosines


@dataclass(frozen=True, eq=False)
class ModelRows:
    """The rows of an adapted model: those of the base model's pieces, then those of the added words."""

    rows: Array
    """(n, dim), memory-mapped."""
    n_base: int
    labels: Sequence[str]
    """The word or piece of each row."""
    words: Mapping[str, int]
    """Word → its row, the added row if it has two."""
    hidden: Sequence[int]
    """Rows that are never neighbours: those of special tokens."""
    splitter: WordSplitter

    @classmethod
    def open(cls, folder: Path) -> "ModelRows":
        """The rows of the model in ``folder``; raises what ``require_whole`` raises."""
        require_whole(folder)
        checkpoint = Checkpoint(folder)
        checkpoint.require_finite([checkpoint.embedding_name])
        tokenizer = DualTokenizer.of_model(folder, checkpoint.n_rows)
        vocabulary, added = BaseVocabulary(tokenizer.base), tokenizer.added.all_surfaces()
        first = tokenizer.added.first_id
        labels = [vocabulary.tokenizer.id_to_token(row) or f"[{row}]" for row in range(first)]
        words = {**vocabulary.whole_words, **{word: first + i for i, word in enumerate(added)}}
        hidden, splitter = sorted(vocabulary.special_ids), WordSplitter(tokenizer.base)
        return cls(checkpoint.embedding(), first, [*labels, *added], words, hidden, splitter)

    def table(self, words: Sequence[str], k: int) -> list[Neighbours]:
        """The ``k`` pieces and the ``k`` added words whose rows are nearest to the row of each word that has one."""
        n_base = self.n_base
        views = (("row → wordpieces", 0, n_base), ("row → added words", n_base, len(self.labels)))
        return [
            Neighbours(word, view, self._nearest(word, begin, end, k))
            for word in words
            if word in self.words
            for view, begin, end in views
        ]

    def _nearest(self, word: str, begin: int, end: int, k: int) -> tuple[tuple[str, float], ...]:
        """The ``k`` nearest of the rows from ``begin`` up to ``end``, as labels and cosines.

        Leaves out the rows of ``word`` itself: an added word can also have a row as a piece of the base model.
        """
        row = self.words[word]
        hidden = [number - begin for number in (row, *self.hidden) if begin <= number < end]
        exclude = np.array([hidden or [-1]], np.int64)
        n_candidates = min(2 * k + 1, end - begin)
        indices, cosines = find_nearest(self.rows[row : row + 1], self.rows[begin:end], n_candidates, exclude)
        neighbours: dict[str, float] = {}
        for index, cosine in zip(indices[0].tolist(), cosines[0].tolist(), strict=True):
            if index >= 0 and (label := self.labels[begin + index]) != self.labels[row]:
                neighbours.setdefault(label, cosine)
        return tuple(neighbours.items())[:k]


def vector_table(words: Sequence[str], vectors: WordVectors, k: int) -> list[Neighbours]:
    """The ``k`` words whose vectors are nearest to the vector of each word that has one."""
    known = [word for word in words if word in vectors.index]
    own = np.array([vectors.index[word] for word in known], np.int64)
    indices, cosines = find_nearest(vectors.matrix[own], vectors.matrix, min(k, len(vectors.words)), own[:, None])
    return [
        Neighbours(
            word,
            "word vector → word vectors",
            tuple((vectors.words[i], float(c)) for i, c in zip(*row, strict=True) if i >= 0),
        )
        for word, *row in zip(known, indices, cosines, strict=True)
    ]


def project(rows: Array, added: Array) -> tuple[FloatArray, FloatArray, float]:
    """Project ``rows`` (n, dim) and ``added`` (m, dim) on the two principal axes of ``rows`` (Pearson 1901).

    Returns coordinates (n, 2) and (m, 2), and the share of the variance of ``rows`` along these axes.
    """
    mean = rows.mean(axis=0)
    centred = rows - mean
    # Eigenvectors of the products of rows: faster than singular values if rows are fewer than columns.
    variances, weights = np.linalg.eigh(centred @ centred.T)
    axes = centred.T @ weights[:, :-3:-1]
    plane = axes / np.maximum(np.linalg.norm(axes, axis=0), np.finfo(np.float32).tiny)
    total = float(variances.sum())
    share = float(variances[-2:].sum()) / total if total else 1.0
    return centred @ plane, (added - mean) @ plane, share
