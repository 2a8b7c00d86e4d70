"""The word vectors that a task model reads beside its own states: stacked embeddings (Akbik et al. 2018).

A word's vector v (k,) is made from that of ``w2v``, w (dim,): with m the mean of the most frequent words,

    v = √dim · P (w - m) / ‖w - m‖,

where the rows of P (k, dim) are the principal directions of all words.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from greenadapt.store.arrays import Array, ArrayFile, Float64Array, Sequences, require_finite, row_blocks, write_arrays
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
    def of(cls, vectors: WordVectors, vocabulary: BaseVocabulary) -> "StackedVectors":
        """Those of ``vectors`` whose words have pieces other than ``[UNK]``, reduced to ``DIM`` numbers each."""
        pieces = vocabulary.pieces(vectors.words)
        known = np.array([vocabulary.unk_id not in ids for ids in pieces], bool)
        matrix = np.asarray(vectors.matrix, np.float32)[known]
        scaled = matrix - matrix[:_FREQUENT].mean(0)
        scaled *= np.sqrt(vectors.dim) / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-9)
        reduced = scaled if vectors.dim <= DIM else scaled @ _principal_directions(scaled).T.astype(np.float32)
        return cls(Sequences.of(pieces).take(known), reduced.astype(np.float16))

    def write(self, path: Path) -> None:
        """Write one safetensors file."""
        write_arrays(path, {"offsets": self.pieces.offsets, "pieces": self.pieces.values, "vectors": self.matrix})

    @classmethod
    def open(cls, path: Path) -> "StackedVectors":
        """Map the file of ``write``; raises ``InputError`` if it is broken."""
        file = ArrayFile(path)
        require_finite(file["vectors"], "vectors", path)
        return cls(Sequences(file["pieces"], file["offsets"]), file["vectors"])


def _principal_directions(matrix: Array) -> Float64Array:
    """The ``DIM`` eigenvectors of Xᵀ X with the largest eigenvalues, (DIM, dim), of X (n, dim)."""
    products = sum(block.astype(np.float64).T @ block for block in row_blocks(matrix))
    return np.linalg.eigh(products)[1][:, ::-1][:, :DIM].T
