"""Choose the words that get an embedding row, and compute the rows."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from greenadapt.config import ExpandConfig
from greenadapt.storage.arrays import Array, FloatArray, Int64Array, Streamed
from greenadapt.tokenization.vocabulary import BaseVocabulary
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.form import FormMap
from greenadapt.vectors.piece_rows import PieceIds, mean_of_pieces, rescaled
from greenadapt.vectors.word_vectors import WordVectors

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
class Recipe:
    """What a new row is, by ``config.rows``.

    - ``map``: the word's vector, mapped by ``alignment`` (Poerner et al. 2020, equation 3);
    - ``norm``: the same rescaled to ``norm``, since least squares shrinks rows;
    - ``pieces``: the mean of the rows of ``embedding`` (n_rows, dim) of the word's own pieces;
    - ``blend``: ``config.blend`` · mapped + (1 − ``config.blend``) · mean of pieces;
    - ``form``: vector, count and pieces together, by ``form``.
    """

    config: ExpandConfig
    alignment: Alignment
    embedding: Array
    norm: float
    """The ``wordpiece_norm`` of the model."""
    form: FormMap | None = None
    rescales_form: bool = True
    """Not for rows that are also output rows: to rescale what all rows share shifts the logits of all new words."""

    @property
    def needs_pieces(self) -> bool:
        """Whether ``rows`` reads the words' pieces."""
        return self.config.rows not in ("map", "norm")

    @property
    def needs_map(self) -> bool:
        """Whether ``rows`` reads the mapped vectors."""
        return self.config.rows in ("map", "norm", "blend")

    def rows(self, vectors: Array, counts: Array, pieces: PieceIds = ()) -> FloatArray:
        """Rows (n, dim), float32, of words with these ``vectors`` (n, source_dim), ``counts`` (n,) and ``pieces``."""
        if self.config.rows == "form":
            assert self.form is not None
            made = self.form.rows if self.rescales_form else self.form.unscaled
            return made(vectors, counts, pieces, self.embedding)
        if self.config.rows == "pieces":
            return mean_of_pieces(pieces, self.embedding)
        mapped = self.alignment.apply(vectors)
        if self.config.rows == "map":
            return mapped
        if self.config.rows == "norm":
            return rescaled(mapped, self.norm)
        share = np.float32(self.config.blend)
        blend: FloatArray = share * mapped + (1 - share) * mean_of_pieces(pieces, self.embedding)
        return blend


@dataclass(frozen=True, eq=False)
class NewRows:
    """The embedding rows of ``words`` in blocks, computed in each iteration, so that they are never all in memory.

    Word i has row ``rows[i]`` of ``vectors``.
    """

    words: Sequence[str]
    rows: Int64Array
    vectors: WordVectors
    vocabulary: BaseVocabulary
    recipe: Recipe

    def __iter__(self) -> Iterator[FloatArray]:
        for begin in range(0, len(self.words), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            own = self.rows[block]
            pieces = self.vocabulary.pieces(self.words[block]) if self.recipe.needs_pieces else ()
            yield self.recipe.rows(self.vectors.matrix[own], self.vectors.counts[own], pieces)

    def streamed(self) -> Streamed:
        """The rows as one array (n, dim), float32, that a checkpoint can be written with."""
        shape = (len(self.words), self.recipe.embedding.shape[1])
        return Streamed(shape, np.dtype(np.float32), self)


def replacements(vectors: WordVectors, base: Mapping[str, int], alignment: Alignment) -> dict[int, FloatArray]:
    """Base id → mapped vector (dim,) of each word that is also in ``base`` (word → id).

    The radical variant of Poerner et al. 2020 (equation 2), which replaces the rows of both vocabularies' words and
    which they found to hurt.
    """
    shared = np.array([i for i, word in enumerate(vectors.words) if word in base], np.int64)
    rows = alignment.apply(vectors.matrix[shared])
    return {base[vectors.words[i]]: row for i, row in zip(shared.tolist(), rows, strict=True)}
