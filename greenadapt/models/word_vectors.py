"""Word vectors looked up for the pieces of a model's inputs."""

from dataclasses import dataclass

import numpy as np

from greenadapt.store.arrays import Array, BoolArray, IntArray, Sequences, offsets_of
from greenadapt.tasks.base import Features
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import CONTINUES
from greenadapt.vectors.stacked import StackedVectors

KEYWORD = "word_vectors"
"""The argument of a model, and of a graph, that has the vector of each piece's word."""


@dataclass(frozen=True, eq=False)
class WordVectorReader:
    """Looks up the vector of each piece's word; a ``MemoryInput``."""

    table: StackedVectors
    row_of_id: IntArray
    """(n_ids,): the row of the word that is one base piece or an added word, -1 if it has none."""
    is_inside: BoolArray
    """(n_ids,): whether a piece continues a word."""

    @classmethod
    def of(cls, tokenizer: DualTokenizer, table: StackedVectors) -> "WordVectorReader":
        """The reader of inputs that ``tokenizer`` (WordPiece) makes, in either tokenization."""
        base, added = tokenizer.base, tokenizer.added
        singles = Sequences(np.arange(added.first_id, dtype=np.int32), np.arange(added.first_id + 1))
        rows = [table.row_of.get(key, -1) for words in (singles, added.pieces) for key in words.as_bytes()]
        is_inside = np.zeros(len(rows), bool)
        is_inside[[row for piece, row in base.get_vocab().items() if piece.startswith(CONTINUES)]] = True
        return cls(table, np.array(rows, np.int64), is_inside)

    def read(self, inputs: Features) -> dict[str, Array]:
        """``word_vectors`` (b, longest, dim) float32: 0 for words without a vector, special tokens and padding."""
        begins = ~self.is_inside[inputs.ids]
        begins[offsets_of(inputs.lengths)[:-1]] = True
        words = Sequences(inputs.ids, np.append(np.flatnonzero(begins), len(inputs.ids)))
        sizes = np.diff(words.offsets)
        rows = self.row_of_id[inputs.ids[words.offsets[:-1]]]
        several = np.flatnonzero(sizes > 1)
        rows[several] = [self.table.row_of.get(key, -1) for key in words.take(several).as_bytes()]
        states = np.zeros((*inputs.is_piece.shape, self.table.dim), np.float32)
        of_piece = np.repeat(rows, sizes)
        is_known = inputs.is_piece.copy()
        is_known[inputs.is_piece] = of_piece >= 0
        states[is_known] = self.table.matrix[of_piece[of_piece >= 0]]
        return {KEYWORD: states}
