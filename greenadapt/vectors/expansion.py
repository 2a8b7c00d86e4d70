"""Choose the words that get an embedding row, and compute the rows."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from greenadapt.config import ExpandConfig
from greenadapt.storage.arrays import Array, FloatArray, Int64Array, Streamed, row_blocks
from greenadapt.tokenization.base_vocabulary import BaseVocabulary
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.word_vectors import WordVectors

PieceIds = Sequence[Sequence[int]]
_BLOCK = 4096  # new rows made at a time


def select(
    words: Sequence[str],
    counts: Int64Array,
    base: Container[str],
    config: ExpandConfig,
    vocabulary: BaseVocabulary,
    allowed: Container[str] | None = None,
) -> Int64Array:
    """Indices of the ``words`` that get a row, most frequent first, ties in the given order, int64 (n_new,).

    Excludes words in ``base``: those with a row already, and special tokens. Only words in ``allowed``, if given, with
    at least ``config.min_count`` in ``counts`` (n_words,) and cut into at least ``config.min_pieces``
    pieces of ``vocabulary`` (``[UNK]`` is one piece); of these the first ``config.max_words``. New ids follow this
    order (Poerner et al. 2020: the order of the vector file, which word2vec sorts the same way).
    """
    order: Int64Array = np.argsort(-np.asarray(counts, np.int64), kind="stable")
    order = order[counts[order] >= config.min_count]
    fits = [words[i] not in base and (allowed is None or words[i] in allowed) for i in order.tolist()]
    order = order[np.array(fits, bool)]
    if config.min_pieces > 1:
        n_pieces = np.array([len(own) for own in vocabulary.pieces([words[i] for i in order.tolist()])], np.int64)
        order = order[n_pieces >= config.min_pieces]
    return order[: config.max_words]


@dataclass(frozen=True, eq=False)
class NewRows:
    """The embedding rows of ``words`` in blocks, computed in each iteration, so that they are never all in memory.

    ``config.rows`` says what a row is:

    - ``map``: the word's vector, row ``rows[i]`` of ``matrix``, mapped by ``alignment`` (Poerner et al. 2020,
      equation 3);
    - ``norm``: the same rescaled to the ``wordpiece_norm``, since least squares shrinks rows;
    - ``pieces``: the mean of the rows of ``embedding`` (n_rows, dim) of the word's own pieces;
    - ``blend``: ``config.blend`` · mapped + (1 − ``config.blend``) · mean of pieces.
    """

    words: Sequence[str]
    rows: Int64Array
    matrix: Array
    alignment: Alignment
    vocabulary: BaseVocabulary
    embedding: Array
    config: ExpandConfig

    def __iter__(self) -> Iterator[FloatArray]:
        for begin in range(0, len(self.words), _BLOCK):
            yield self._block(slice(begin, begin + _BLOCK))

    def streamed(self) -> Streamed:
        """The rows as one array (n, dim), float32, that a checkpoint can be written with."""
        return Streamed((len(self.words), self.embedding.shape[1]), np.dtype(np.float32), self)

    def _block(self, block: slice) -> FloatArray:
        if self.config.rows == "pieces":
            return self._means(block)
        mapped = self.alignment.apply(self.matrix[self.rows[block]])
        if self.config.rows == "map":
            return mapped
        if self.config.rows == "norm":
            return rescaled(mapped, self._norm)
        share = np.float32(self.config.blend)
        blend: FloatArray = share * mapped + (1 - share) * self._means(block)
        return blend

    def _means(self, block: slice) -> FloatArray:
        return mean_of_pieces(self.vocabulary.pieces(self.words[block]), self.embedding)

    @cached_property
    def _norm(self) -> float:
        return wordpiece_norm(self.embedding, self.vocabulary.size, self.vocabulary.special_ids)


def rescaled(rows: FloatArray, norm: float) -> FloatArray:
    """``rows`` (n, dim), each with the Euclidean length ``norm``; a zero row stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    factors: FloatArray = np.divide(np.float32(norm), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return rows * factors


def mean_of_pieces(pieces: PieceIds, embedding: Array) -> FloatArray:
    """Mean of the rows of ``embedding`` (n_rows, dim) for each list of ids in ``pieces``, float32 (n, dim).

    So a word that is ``[UNK]`` to the base model has the row of ``[UNK]``. Raises ``ValueError`` for an empty list.
    """
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    if not lengths.all():
        raise ValueError(f"word {int(np.argmin(lengths))} has no pieces")
    flat = np.fromiter((i for word in pieces for i in word), np.int64, int(lengths.sum()))
    begins = np.cumsum(lengths) - lengths
    means: FloatArray = np.add.reduceat(embedding[flat].astype(np.float32), begins, axis=0)
    means /= lengths[:, None]
    return means


def replacements(vectors: WordVectors, base: Mapping[str, int], alignment: Alignment) -> dict[int, FloatArray]:
    """Base id → mapped vector (dim,) of each word that is also in ``base`` (word → id).

    The radical variant of Poerner et al. 2020 (equation 2), which replaces the rows of both vocabularies' words and
    which they found to hurt.
    """
    shared = np.array([i for i, word in enumerate(vectors.words) if word in base], np.int64)
    rows = alignment.apply(vectors.matrix[shared])
    return {base[vectors.words[i]]: row for i, row in zip(shared.tolist(), rows, strict=True)}


def wordpiece_norm(embedding: Array, n_tokens: int, special_ids: Collection[int]) -> float:
    """Mean Euclidean length of the rows of ``embedding`` that are wordpieces, whole words and parts of words alike.

    Excludes special tokens, and rows from ``n_tokens`` on, which only pad the table.
    """
    blocks = row_blocks(embedding[:n_tokens])
    lengths = np.concatenate([np.linalg.norm(block.astype(np.float32), axis=1) for block in blocks])
    kept = np.delete(lengths, [i for i in special_ids if i < n_tokens])
    return float(kept.mean(dtype=np.float64))
