"""Choose the words that get an embedding row, and compute the rows: map, norm, pieces or form.

A new recipe is a branch of ``RowRecipe.rows``; ``CONTRIBUTING.md`` lists what else it needs.

``form`` follows BERTRAM (Schick and Schütze, arXiv 1910.07181). A frequent word is known by its contexts, a rare one by
its form, the pieces that it is spelled with. BERTRAM trains a network that weighs the two; here a ridge regression
does, on features in which the word's count weighs them.
"""

import re
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import assert_never

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AlignConfig, ExpandConfig, RecipeName
from greenadapt.corpus.readers import words_in_files
from greenadapt.errors import InputError
from greenadapt.store.arrays import Array, Float64Array, FloatArray, Int64Array, StreamedArray, row_blocks
from greenadapt.tokenization.added_words import NewEntries, new_entries, new_forms
from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter
from greenadapt.vectors.alignment import Alignment, fit, overlap
from greenadapt.vectors.neighbours import unit_rows
from greenadapt.vectors.quality import MIN_OVERLAP, HeldOutFigures, KnownWords, PieceIds, has_counts, measure, split
from greenadapt.vectors.word_vectors import WordVectors


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


def rescale_rows(rows: FloatArray, norm: float) -> FloatArray:
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
    lengths = np.delete(lengths, [i for i in special_ids if i < n_tokens])
    return float(lengths.mean(dtype=np.float64))


_BLOCK = 4096  # words whose features or new rows are in memory at once
GATE = 50
"""Occurrences at which contexts count as much as form."""


@dataclass(frozen=True, eq=False)
class FormRegression:
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

    def rows(
        self, vectors: Array, counts: Array, pieces: PieceIds, embedding: Array, *, rescale: bool = True
    ) -> FloatArray:
        """Rows (n, dim), float32, of n words with ``vectors`` (n, source_dim), ``counts`` (n,) and the ids of their
        ``pieces``, rows of ``embedding`` (n_rows, dim). Without ``rescale``: the plain least-squares fit.
        """
        blocks = _features(vectors, counts, pieces, embedding, self.norm)
        rows = np.concatenate([block @ self.weights + self.offset for block in blocks])
        return rescale_rows(rows, self.norm) if rescale else rows


class FormSums:
    """Float64 sums over words with rows y of their own, from which a ``FormRegression`` is fitted."""

    def __init__(self, source_dim: int, dim: int) -> None:
        size = 2 * source_dim + 4 * dim
        self._gram: Float64Array = np.zeros((size, size), order="F")  # Σ φ φᵀ, the upper triangle
        self._cross: Float64Array = np.zeros((size, dim))  # Σ φ yᵀ
        self._features: Float64Array = np.zeros(size)  # Σ φ
        self._targets: Float64Array = np.zeros(dim)  # Σ y
        self._n = 0

    def add(self, known: KnownWords, words: Int64Array, norm: float) -> None:
        """Add some ``words`` of the ``known`` ones, a block at a time; ``norm`` is the unit of their pieces' rows."""
        from scipy.linalg import blas

        pieces, targets = [known.pieces[i] for i in words.tolist()], known.targets(words)
        begin = 0
        for block in _features(known.vectors[words], known.counts[words], pieces, known.base, norm):
            features = block.astype(np.float64)
            rows = targets[begin : begin + len(block)].astype(np.float64)
            self._gram = blas.dsyrk(1, features.T, beta=1, c=self._gram, overwrite_c=True)
            self._cross += features.T @ rows
            self._features += features.sum(axis=0)
            self._targets += rows.sum(axis=0)
            begin += len(block)
        self._n += begin

    def fit(self, norm: float) -> FormRegression:
        """The map W that minimizes Σ‖y − μ − (φ − φ̄) W‖² + λ‖W‖², with λ the mean over the features of Σ(φ − φ̄)²."""
        from scipy.linalg import blas, cho_factor, cho_solve

        mean, row_mean = self._features / self._n, self._targets / self._n
        gram = blas.dsyr(-self._n, mean, a=self._gram)
        gram[np.diag_indices(len(gram))] += np.trace(gram) / len(gram) or 1.0  # without spread every W is as good
        factor = cho_factor(gram, overwrite_a=True, check_finite=False)
        weights = cho_solve(factor, self._cross - self._n * np.outer(mean, row_mean), overwrite_b=True)
        return FormRegression(weights.astype(np.float32), (row_mean - mean @ weights).astype(np.float32), norm)


def _features(vectors: Array, counts: Array, pieces: PieceIds, embedding: Array, norm: float) -> Iterator[FloatArray]:
    """φ of each word, in blocks (b, n_features), float32."""
    for begin in range(0, len(vectors), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        ids = pieces[block]
        units = unit_rows(vectors[block])
        gate = (counts[block] / (counts[block] + GATE)).astype(np.float32)[:, None]
        means = mean_of_pieces(ids, embedding) / np.float32(norm)
        first, last = (
            np.asarray(embedding[[word_ids[i] for word_ids in ids]], np.float32) / np.float32(norm) for i in (0, -1)
        )
        yield np.hstack([gate * units, (1 - gate) / 2 * units, means, (1 - gate) * means, first / 2, last / 2])


_KEY_LENGTH, _LEAST_LENGTH = 16, 8
_SWITCH = re.compile(r"(?=[^\W\d_]\d|\d[^\W\d_])")


def is_key(word: str) -> bool:
    """Whether ``word`` has the shape of a key, a hash or encoded bytes: at least 16 characters, among which letters and
    digits change at least three times.
    """
    return len(word) >= _KEY_LENGTH and len(_SWITCH.findall(word)) >= 3


def select(
    words: Sequence[str],
    counts: Int64Array,
    base: Container[str],
    config: ExpandConfig,
    allowed: Container[str] | None = None,
) -> Int64Array:
    """Select the ``words`` that get a row: indices, most frequent first, ties in order, int64 (n_new,).

    Words in ``base`` have a row already or are special tokens. A word must be in ``allowed``, or without it no key
    (``is_key``), and occur ``config.min_count`` times according to ``counts`` (n_words,). Selects at most
    ``config.max_words``. New ids follow this order, which is that of word2vec's vector files, as in Poerner et al.
    2020.
    """
    order: Int64Array = np.argsort(-np.asarray(counts, np.int64), kind="stable")
    order = order[counts[order] >= config.min_count]
    is_allowed = [
        words[i] not in base and (not is_key(words[i]) if allowed is None else words[i] in allowed)
        for i in order.tolist()
    ]
    order = order[np.array(is_allowed, bool)]
    return order[: config.max_words]


@dataclass(frozen=True, eq=False)
class RowRecipe:
    """How a new row is computed, by ``name``:

    - ``map``: the word's vector, mapped by ``alignment`` (Poerner et al. 2020, equation 3);
    - ``norm``: the same rescaled to ``norm``, since least squares shrinks rows;
    - ``pieces``: the mean of the rows of ``embedding`` (n_rows, dim) of the word's own pieces;
    - ``form``: vector, count and pieces together, by ``form``.
    """

    name: RecipeName
    alignment: Alignment
    embedding: Array
    norm: float
    """The ``wordpiece_norm`` of the model."""
    form: FormRegression | None = None

    @property
    def needs_map(self) -> bool:
        """Whether ``rows`` reads the mapped vectors; with ``form`` the map serves only figures and neighbours."""
        return self.name in ("map", "norm")

    def fit(self, known: KnownWords, words: Int64Array, sums: FormSums) -> "RowRecipe":
        """Fit ``form`` on the words of ``sums``, which it extends by ``words`` of ``known``; the others need no fit."""
        if self.name != "form":
            return self
        sums.add(known, words, self.norm)
        return replace(self, form=sums.fit(self.norm))

    def rows(self, vectors: Array, counts: Array, pieces: PieceIds = ()) -> FloatArray:
        """Rows (n, dim), float32, of words with these ``vectors`` (n, source_dim), ``counts`` (n,) and ``pieces``."""
        if self.name == "form":
            assert self.form is not None
            return self.form.rows(vectors, counts, pieces, self.embedding)
        if self.name == "pieces":
            return mean_of_pieces(pieces, self.embedding)
        mapped = self.alignment.apply(vectors)
        if self.name == "map":
            return mapped
        if self.name == "norm":
            return rescale_rows(mapped, self.norm)
        assert_never(self.name)


@dataclass(frozen=True, eq=False)
class NewRows:
    """The embedding rows of ``words`` in blocks, computed in each iteration, so that they are never all in memory.

    Word i has row ``vector_indices[i]`` of ``vectors``.
    """

    words: Sequence[str]
    vector_indices: Int64Array
    vectors: WordVectors
    vocabulary: BaseVocabulary
    recipe: RowRecipe

    def __iter__(self) -> Iterator[FloatArray]:
        for begin in range(0, len(self.words), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            indices = self.vector_indices[block]
            pieces = self.vocabulary.pieces(self.words[block])
            yield self.recipe.rows(self.vectors.matrix[indices], self.vectors.counts[indices], pieces)


def replacements(vectors: WordVectors, base: Mapping[str, int], alignment: Alignment) -> dict[int, FloatArray]:
    """Base id → mapped vector (dim,) of each word that is also in ``base`` (word → id).

    The radical variant of Poerner et al. 2020 (equation 2), which replaces the rows of both vocabularies' words and
    which they found to hurt.
    """
    shared = np.array([i for i, word in enumerate(vectors.words) if word in base], np.int64)
    rows = alignment.apply(vectors.matrix[shared])
    return {base[vectors.words[i]]: row for i, row in zip(shared.tolist(), rows, strict=True)}


@dataclass(frozen=True, eq=False)
class PredictedRows:
    """Rows of held-out words, each predicted from a fit on the other words of ``known``."""

    known: KnownWords
    heldout: Int64Array
    """Indices of the held-out words, (n_heldout,)."""
    rows: dict[RecipeName, FloatArray]
    """Recipe → its rows of them, (n_heldout, dim)."""
    sums: FormSums
    """Over the other words, if ``form`` is among the recipes."""

    def measure(self, rows: FloatArray) -> HeldOutFigures:
        """How near any ``rows`` (n_heldout, dim) of the held-out words are to the model's."""
        return measure(rows, self.known, self.heldout)

    def random(self, norm: float, seed: int) -> FloatArray:
        """As a baseline, random rows (n_heldout, dim) of the length ``norm``, drawn from a normal distribution with the
        mean and deviation of the other words' rows.
        """
        targets = self.known.targets(np.setdiff1d(np.arange(len(self.known.base_ids)), self.heldout))
        drawn = np.random.default_rng(seed).standard_normal((len(self.heldout), targets.shape[1]), np.float32)
        return rescale_rows(targets.mean(axis=0) + targets.std(axis=0) * drawn, norm)


def predict_rows(known: KnownWords, recipes: Sequence[RowRecipe], config: AlignConfig) -> PredictedRows:
    """Rows of the ``recipes``, fitted on the same words as ``fit_and_measure`` does.

    Raises ``InputError`` for fewer than 50 words.
    """
    n = len(known.base_ids)
    if n < MIN_OVERLAP:
        raise InputError(
            f"{n} of the words in both vocabularies can be spelled without their row, held-out figures need "
            f"{MIN_OVERLAP}",
            "use a larger corpus, or --rows norm",
        )
    heldout, fitted = split(n, config)
    sums = FormSums(known.vectors.shape[1], known.base.shape[1])
    if any(recipe.needs_map for recipe in recipes):
        alignment = fit(known.vectors[fitted], known.targets(fitted), config)
        recipes = [replace(recipe, alignment=alignment) for recipe in recipes]
    words = known.vectors[heldout], known.counts[heldout], [known.pieces[i] for i in heldout.tolist()]
    rows = {recipe.name: recipe.fit(known, fitted, sums).rows(*words) for recipe in recipes}
    return PredictedRows(known, heldout, rows, sums)


AUTO_RECIPES: tuple[RecipeName, ...] = ("norm", "pieces", "form")
"""What ``--rows auto`` chooses from."""


@dataclass(frozen=True, eq=False)
class Expansion:
    """New rows of a model for the words of ``vectors``, mapped into its space by ``alignment``."""

    checkpoint: Checkpoint
    vocabulary: BaseVocabulary
    vectors: WordVectors
    alignment: Alignment
    config: ExpandConfig
    fitting: AlignConfig = AlignConfig()  # noqa: RUF009  (it is frozen)
    """How the alignment was fitted and which words were held out."""

    @cached_property
    def recipe(self) -> RowRecipe:
        """The recipe that the configuration names, fitted. ``auto`` takes the one with the highest cosine on held-out
        words; ``pieces`` replaces ``form`` if too few words are known.
        """
        if self.config.rows != "auto":
            name = self.config.rows
        else:
            name = max(self.heldout_figures, key=lambda name: self.heldout_figures[name].cosine)
        if name != "form":
            return self.make_recipe(name)
        if len(self.known_words.base_ids) < MIN_OVERLAP:
            return self.make_recipe("pieces")
        predicted = self._predicted_rows
        return self.make_recipe("form").fit(self.known_words, predicted.heldout, deepcopy(predicted.sums))

    @cached_property
    def heldout_figures(self) -> dict[RecipeName, HeldOutFigures]:
        """Held-out figures of the recipe, or of all recipes of ``--rows auto``; empty for ``map``, which ``align``
        measures, and if there are too few words.

        Raises ``InputError`` if there are too few words for ``--rows auto``.
        """
        if self.config.rows == "map":
            return {}
        if self.config.rows != "auto" and len(self.known_words.base_ids) < MIN_OVERLAP:
            return {}
        return {name: self._predicted_rows.measure(rows) for name, rows in self._predicted_rows.rows.items()}

    @cached_property
    def _predicted_rows(self) -> PredictedRows:
        return self.predict(AUTO_RECIPES if self.config.rows == "auto" else (self.config.rows,))

    def predict(self, names: Sequence[RecipeName]) -> PredictedRows:
        """Rows of held-out words by these recipes; raises ``InputError`` if the words are too few."""
        return predict_rows(self.known_words, list(map(self.make_recipe, names)), self.fitting)

    def make_recipe(self, name: RecipeName) -> RowRecipe:
        """The recipe ``name``, not fitted yet."""
        return RowRecipe(name, self.alignment, self.checkpoint.embedding(), self.norm)

    @cached_property
    def norm(self) -> float:
        """The ``wordpiece_norm`` of the embedding."""
        return wordpiece_norm(self.checkpoint.embedding(), self.vocabulary.size, self.vocabulary.special_ids)

    @cached_property
    def known_words(self) -> KnownWords:
        """The overlapping words that the model could spell without their rows."""
        vocabulary = self.vocabulary
        words, rows, ids = overlap(self.vectors, vocabulary)
        pieces = vocabulary.pieces_without_row(words)
        spelled = np.flatnonzero(list(map(bool, pieces)))
        rows = rows[spelled]
        return KnownWords(
            np.asarray(self.vectors.matrix[rows], np.float32),
            self._vectors_with_counts.counts[rows],
            ids[spelled],
            self.checkpoint.embedding()[: vocabulary.size],
            [pieces[i] for i in spelled.tolist()],
            vocabulary.special_ids,
            [words[i] for i in spelled.tolist()],
        )

    @cached_property
    def _vectors_with_counts(self) -> WordVectors:
        """The vectors; vectors without counts get the count at which contexts weigh as much as form."""
        counts = self.vectors.counts
        return self.vectors if has_counts(counts) else replace(self.vectors, counts=np.full_like(counts, GATE))

    @cached_property
    def _surface_forms(self) -> Array:
        return new_forms(self.vectors.words, self.vocabulary)

    @cached_property
    def new_word_indices(self) -> Array:
        """Rows of ``vectors`` whose words get a row of their own, most frequent first, int64 ``(n_new,)``."""
        words = self.vectors.words
        existing = {words[i] for i in np.flatnonzero(~self._surface_forms.any(axis=1)).tolist()}
        allowed = None
        if self.config.restrict_to:
            files = [Path(path) for path in self.config.restrict_to]
            allowed = words_in_files(files, WordSplitter(self.vocabulary.tokenizer))
        return select(words, self.vectors.counts, existing, self.config, allowed)

    def sample_words(self) -> dict[str, list[str]]:
        """The 20 most ``frequent`` new words, and the 10 ``oddest``: those that the model cuts into the most pieces for
        their length, such as addresses and encoded bytes, if the text has any.
        """
        words = [self.vectors.words[row] for row in self.new_word_indices.tolist()]
        pieces = self.vocabulary.pieces(words)
        pieces_per_character = [
            len(ids) / max(len(word), _LEAST_LENGTH) for ids, word in zip(pieces, words, strict=True)
        ]
        oddest = np.argsort(-np.array(pieces_per_character), kind="stable")[:10]
        return {"frequent": words[:20], "oddest": [words[i] for i in oddest.tolist()]}

    @cached_property
    def entries(self) -> NewEntries:
        """The new vocabulary strings, one per new row; raises ``InputError`` if there are none."""
        if not len(self.new_word_indices):
            raise InputError(
                f"none of the {len(self.vectors.words):,} words gets a row (the model or the options exclude them)",
                "lower --min-count, or use a larger corpus",
            )
        words = [self.vectors.words[row] for row in self.new_word_indices.tolist()]
        return new_entries(words, self.vocabulary, self.config.oov, self._surface_forms[self.new_word_indices])

    @property
    def hidden_occurrences(self) -> int:
        """How often words that only DualTokenizer finds occur in the corpus; 0 for vectors without counts."""
        counts = self.vectors.counts
        hidden = np.unique(self.entries.word[~self.entries.exported])
        return int(counts[self.new_word_indices[hidden]].sum()) if has_counts(counts) else 0

    def rows(self) -> StreamedArray:
        """The new entries' rows, (n, dim), float32."""
        surfaces, rows = self.entries.surfaces(), self.new_word_indices[self.entries.word]
        blocks = NewRows(surfaces, rows, self._vectors_with_counts, self.vocabulary, self.recipe)
        return StreamedArray((len(rows), self.recipe.embedding.shape[1]), np.dtype(np.float32), blocks)
