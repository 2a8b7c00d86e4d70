"""The word vectors that a task model reads beside its own states: stacked embeddings (Akbik et al. 2018).

A word's vector v (k,) is made from that of ``w2v``, w (dim,): with m the mean of the most frequent words,

    v = √dim · P (w - m) / ‖w - m‖,

where the rows of P (k, dim) are the principal directions of all words.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from greenadapt.store.arrays import Array, ArrayFile, FloatArray, IntArray, Sequences, require_finite, write_arrays
from greenadapt.tokenization.vocabulary import BaseVocabulary
from greenadapt.vectors.word_vectors import WordVectors

DIM = 128
"""Numbers of a vector at most: 33,000 words take 9 MB."""
_FREQUENT = 20_000


@dataclass(frozen=True, eq=False)
class StackedVectors:
    """Words by their base pieces, and the vectors of these words."""

    pieces: Sequences
    """int32, of each word."""
    matrix: Array
    """float16, (n_words, dim); may be memory-mapped."""

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.matrix.shape[1])

    @cached_property
    def row_of(self) -> dict[bytes, int]:
        """Base pieces of a word, as bytes → its row."""
        return {key: row for row, key in enumerate(self.pieces.as_bytes())}

    @classmethod
    def of(cls, vectors: WordVectors, vocabulary: BaseVocabulary, added: Collection[str]) -> "StackedVectors":
        """Those of the ``added`` words and of words that are one piece, reduced to ``DIM`` numbers each.

        No other word of the text gets into the model's folder. Words that are ``[UNK]`` have no vector.
        """
        pieces, added = vocabulary.pieces(vectors.words), frozenset(added)
        words = zip(vectors.words, pieces, strict=True)
        rows = np.flatnonzero(
            [vocabulary.unk_id not in ids and (len(ids) == 1 or word in added) for word, ids in words]
        )
        blocks = partial(_scaled_blocks, vectors.matrix, rows)
        directions = np.eye(vectors.dim, dtype=np.float32)
        if vectors.dim > DIM:
            directions = _principal_directions(blocks())
        reduced = [(block @ directions.T).astype(np.float16) for block in blocks()]
        return cls(Sequences.of(pieces).take(rows), np.concatenate(reduced))

    def write(self, path: Path) -> None:
        """Write one safetensors file."""
        write_arrays(path, {"offsets": self.pieces.offsets, "pieces": self.pieces.values, "vectors": self.matrix})

    @classmethod
    def open(cls, path: Path) -> "StackedVectors":
        """Map the file of ``write``; raises ``InputError`` if it is broken."""
        file = ArrayFile(path)
        require_finite(file["vectors"], "vectors", path)
        return cls(Sequences(file["pieces"], file["offsets"]), file["vectors"])


def _scaled_blocks(matrix: Array, rows: IntArray) -> Iterator[FloatArray]:
    """√dim · (w - m) / ‖w - m‖ of the rows w of ``matrix``, m being the mean of the first of them, in blocks."""
    mean = np.asarray(matrix[rows[:_FREQUENT]], np.float32).mean(0) if len(rows) else 0
    for begin in range(0, max(1, len(rows)), _FREQUENT):
        block = np.asarray(matrix[rows[begin : begin + _FREQUENT]], np.float32) - mean
        block *= np.sqrt(matrix.shape[1]) / np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1e-9)
        yield block


def _principal_directions(blocks: Iterable[FloatArray]) -> FloatArray:
    """The ``DIM`` eigenvectors of Xᵀ X with the largest eigenvalues, (DIM, dim); ``blocks`` are the rows of X."""
    products = np.sum([(block.T @ block).astype(np.float64) for block in blocks], axis=0)
    return np.linalg.eigh(products)[1][:, ::-1][:, :DIM].T.astype(np.float32)
