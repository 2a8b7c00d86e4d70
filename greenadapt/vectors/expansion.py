"""Which words get an embedding row of their own, and what the row is."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenadapt.config import ExpandConfig
from greenadapt.corpus.word_counts import IntArray
from greenadapt.storage.arrays import Array, Streamed, row_blocks

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
Pieces = Sequence[Sequence[int]]
_BLOCK = 4096  # new rows made at a time


def select(
    words: Sequence[str],
    counts: IntArray,
    base: Container[str],
    config: ExpandConfig,
    n_pieces: Callable[[Sequence[str]], Sequence[int]],
    allowed: Container[str] | None = None,
) -> IntArray:
    """Indices into ``words`` of those that get a row, most frequent first, ties in the given order, int64 (n_new,).

    Never words in ``base``: the words that have a row already, and special tokens. Only words in ``allowed`` where it
    is given, with at least ``config.min_count`` in ``counts`` (n_words,) and cut into at least ``config.min_pieces``
    pieces now (``n_pieces``; ``[UNK]`` is one piece); of these the first ``config.max_words``. New ids follow this
    order (Poerner et al. 2020: the order of the vector file, which word2vec sorts the same way).
    """
    order: IntArray = np.argsort(-np.asarray(counts, np.int64), kind="stable")
    order = order[counts[order] >= config.min_count]
    fits = [words[i] not in base and (allowed is None or words[i] in allowed) for i in order.tolist()]
    order = order[np.array(fits, bool)]
    if config.min_pieces > 1:
        pieces = np.asarray(n_pieces([words[i] for i in order.tolist()]), np.int64)
        order = order[pieces >= config.min_pieces]
    return order[: config.max_words]


@dataclass(frozen=True, eq=False)
class NewRows:
    """The embedding rows of ``n`` words in blocks, made anew in each iteration, so that they are never all in memory.

    ``config.rows`` says what a row is:

    - ``map``: the mapped vector W·v of the word (Poerner et al. 2020, equation 3);
    - ``norm``: the same rescaled to length ``norm``, since least squares shrinks rows;
    - ``pieces``: the mean of the rows of ``embedding`` (n_rows, dim) of the word's own pieces;
    - ``blend``: ``config.blend`` · mapped + (1 − ``config.blend``) · mean of pieces.

    ``mapped(block)`` gives the mapped vectors (len, dim), and ``pieces(block)`` the base ids of the pieces, of the
    words in a slice of 0 … n; each is called only where the recipe needs it.
    """

    n: int
    config: ExpandConfig
    mapped: Callable[[slice], Array]
    pieces: Callable[[slice], Pieces]
    embedding: Array
    norm: float

    def __iter__(self) -> Iterator[FloatArray]:
        for begin in range(0, self.n, _BLOCK):
            yield self._rows(slice(begin, min(begin + _BLOCK, self.n)))

    def streamed(self) -> Streamed:
        """The rows as one array (n, dim), float32, that a checkpoint can be written with."""
        return Streamed((self.n, self.embedding.shape[1]), np.dtype(np.float32), self)

    def _rows(self, block: slice) -> FloatArray:
        if self.config.rows == "pieces":
            return mean_of_pieces(self.pieces(block), self.embedding)
        mapped = np.asarray(self.mapped(block), np.float32)
        if self.config.rows == "map":
            return mapped
        if self.config.rows == "norm":
            return rescaled(mapped, self.norm)
        share = np.float32(self.config.blend)
        blend: FloatArray = share * mapped + (1 - share) * mean_of_pieces(self.pieces(block), self.embedding)
        return blend


def rescaled(rows: FloatArray, norm: float) -> FloatArray:
    """``rows`` (n, dim), each with the Euclidean length ``norm``; a zero row stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    factors: FloatArray = np.divide(np.float32(norm), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return rows * factors


def mean_of_pieces(pieces: Pieces, embedding: Array) -> FloatArray:
    """Mean of the rows of ``embedding`` (n_rows, dim) for each list of ids in ``pieces``, float32 (n, dim).

    A word that the base model sees as ``[UNK]`` so has the row of ``[UNK]``. Raises ``ValueError`` for an empty list.
    """
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    if not lengths.all():
        raise ValueError(f"word {int(np.argmin(lengths))} has no pieces")
    flat = np.fromiter((i for word in pieces for i in word), np.int64, int(lengths.sum()))
    begins = np.cumsum(lengths) - lengths
    means: FloatArray = np.add.reduceat(embedding[flat].astype(np.float32), begins, axis=0)
    means /= lengths[:, None]
    return means


def replacements(
    words: Sequence[str], base: Mapping[str, int], mapped: Callable[[IntArray], Array]
) -> dict[int, FloatArray]:
    """Base id → mapped vector (dim,) of each word that also is in ``base`` (word → id); ``mapped`` takes indices.

    The radical variant of Poerner et al. 2020 (equation 2), which replaces the rows of both vocabularies' words and
    which they found to hurt.
    """
    shared = np.array([i for i, word in enumerate(words) if word in base], np.int64)
    rows = np.asarray(mapped(shared), np.float32)
    return {base[words[i]]: row for i, row in zip(shared.tolist(), rows, strict=True)}


def wordpiece_norm(embedding: Array, n_tokens: int, special_ids: Collection[int]) -> float:
    """Mean Euclidean length of the rows of ``embedding`` that are wordpieces, whole words and parts of words alike.

    Left out are special tokens, and rows from ``n_tokens`` on, which only pad the table.
    """
    blocks = row_blocks(embedding[:n_tokens])
    lengths = np.concatenate([np.linalg.norm(block.astype(np.float32), axis=1) for block in blocks])
    kept = np.delete(lengths, [i for i in special_ids if i < n_tokens])
    return float(kept.mean(dtype=np.float64))
