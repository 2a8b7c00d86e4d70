"""What new rows take from the rows of wordpieces: their mean, and their length."""

from collections.abc import Collection, Sequence

import numpy as np

from greenadapt.storage.arrays import Array, FloatArray, row_blocks

PieceIds = Sequence[Sequence[int]]


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


def rescaled(rows: FloatArray, norm: float) -> FloatArray:
    """``rows`` (n, dim), each with the Euclidean length ``norm``; a zero row stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    factors: FloatArray = np.divide(np.float32(norm), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return rows * factors


def wordpiece_norm(embedding: Array, n_tokens: int, special_ids: Collection[int]) -> float:
    """Mean Euclidean length of the rows of ``embedding`` that are wordpieces, whole words and parts of words alike.

    Excludes special tokens, and rows from ``n_tokens`` on, which only pad the table.
    """
    blocks = row_blocks(embedding[:n_tokens])
    lengths = np.concatenate([np.linalg.norm(block.astype(np.float32), axis=1) for block in blocks])
    kept = np.delete(lengths, [i for i in special_ids if i < n_tokens])
    return float(kept.mean(dtype=np.float64))
