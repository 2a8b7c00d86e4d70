"""Which words get a row, and what the row is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from greenadapt.config import ExpandConfig, RecipeName
from greenadapt.vectors import rows
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.quality import KnownWords
from greenadapt.vectors.rows import FormRegression, FormSums, NewRows, RowRecipe, replacements, select, wordpiece_norm
from greenadapt.vectors.word_vectors import WordVectors

SELECT_WORDS = ["the", "insulin", "egfr", "[CLS]", "rare", "cardia", "virus"]
COUNTS = np.array([900, 5, 80, 70, 1, 5, 60])
BASE = {"the", "virus", "[CLS]"}


class Vocabulary:
    """What rows need of a base vocabulary."""

    size = 5
    special_ids = frozenset({0})

    def __init__(self, pieces: dict[str, list[int]]) -> None:
        self._pieces = pieces

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        return [self._pieces[word] for word in words]


def chosen(allowed: set[str] | None = None, **config: object) -> list[str]:
    return [SELECT_WORDS[i] for i in select(SELECT_WORDS, COUNTS, BASE, ExpandConfig(**config), allowed)]


def test_each_limit_leaves_words_out() -> None:
    assert chosen(max_words=2) == ["egfr", "insulin"]
    assert chosen(min_count=5) == ["egfr", "insulin", "cardia"]
    assert chosen({"rare", "cardia", "the", "absent"}) == ["cardia", "rare"]
    assert chosen(set()) == []
    assert chosen({"rare", "cardia"}, max_words=1) == ["cardia"]


@pytest.mark.parametrize(
    ("word", "has_row"),
    [
        ("5f4dcc3b5aa765d61d8327deb882cf99", False),  # MD5
        ("dghpcyb0zxn0ig9m", False),  # base64, lower-cased
        ("nih3t3", True),
        ("25hydroxycholecalciferol", True),
    ],
)
def test_words_that_look_like_keys_get_no_row(word: str, has_row: bool) -> None:
    config = ExpandConfig(min_count=1)
    assert select([word], np.ones(1, np.int64), set(), config).tolist() == [0] * has_row
    assert select([word], np.ones(1, np.int64), set(), config, {word}).tolist() == [0]


EMBEDDING = np.arange(24, dtype=np.float16).reshape(8, 3)
MAPPED = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 2.0]], np.float32)
PIECE_IDS = [[1, 2], [7], [0, 3, 3]]
MEANS = np.array([[4.5, 5.5, 6.5], [21, 22, 23], [6, 7, 8]], np.float32)


def identity(dim: int) -> Alignment:
    return Alignment("identity", dim, dim, 2, 1, matrix=np.eye(dim, dtype=np.float32))


def new_rows(mapped: np.ndarray, pieces: Sequence[list[int]], name: RecipeName) -> NewRows:
    words = [f"word{i}" for i in range(len(mapped))]
    vocabulary: Any = Vocabulary(dict(zip(words, pieces, strict=True)))
    # The matrix has the rows in another order: last first.
    rows = np.arange(len(words))[::-1]
    vectors = WordVectors(words[::-1], np.ones(len(words), np.int64), mapped[::-1])
    recipe = RowRecipe(name, identity(mapped.shape[1]), EMBEDDING, wordpiece_norm(EMBEDDING, 5, {0}))
    return NewRows(words, rows, vectors, vocabulary, recipe)


def rows_of(recipe: RecipeName) -> np.ndarray:
    return np.concatenate(list(new_rows(MAPPED, PIECE_IDS, recipe)))


def test_rows_can_be_read_again_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BLOCK", 2)
    new = new_rows(MAPPED, PIECE_IDS, "pieces")
    for _ in range(2):
        blocks = list(new)
        assert list(map(len, blocks)) == [2, 1]
        np.testing.assert_allclose(np.concatenate(blocks), MEANS, rtol=1e-6)


def test_each_recipe_by_hand() -> None:
    np.testing.assert_array_equal(rows_of("map"), MAPPED)
    norm = wordpiece_norm(EMBEDDING, 5, {0})
    expected = np.array([[0.6, 0.8, 0], [0, 0, 0], [1 / 3, 2 / 3, 2 / 3]], np.float32) * norm
    np.testing.assert_allclose(rows_of("norm"), expected, rtol=1e-6)
    np.testing.assert_allclose(rows_of("pieces"), MEANS, rtol=1e-6)


def test_the_wordpiece_norm_counts_neither_specials_nor_padding() -> None:
    embedding = np.diag([100.0, 3.0, 1.0, 50.0, 5.0, 77.0]).astype(np.float16)
    assert wordpiece_norm(embedding, n_tokens=5, special_ids=frozenset({0, 3})) == pytest.approx(3.0)


def test_replacements_are_the_words_of_both() -> None:
    vectors = WordVectors(["a", "b", "c", "d"], np.ones(4, np.int64), np.arange(8, dtype=np.float32).reshape(4, 2))
    twice = replace(identity(2), matrix=2 * np.eye(2, dtype=np.float32))
    replaced = replacements(vectors, {"d": 10, "b": 3, "x": 4}, twice)
    assert {row: value.tolist() for row, value in replaced.items()} == {3: [4, 6], 10: [12, 14]}
    assert replacements(vectors, {}, twice) == {}


N, SOURCE_DIM, DIM, N_ROWS, NORM = 120, 5, 7, 60, 1.7


@pytest.fixture(scope="module")
def case() -> Any:
    """Vectors, counts, pieces, embedding and targets of words whose rows depend on all of them."""
    draw = np.random.default_rng(3)
    vectors = draw.normal(size=(N, SOURCE_DIM)).astype(np.float32)
    vectors[4] = 0
    counts = np.exp(draw.uniform(0, 8, N)).astype(np.int64)
    pieces = [draw.integers(0, N_ROWS, draw.integers(1, 5)).tolist() for _ in range(N)]
    embedding = draw.normal(size=(N_ROWS, DIM)).astype(np.float32)
    means = np.stack([embedding[ids].mean(0) for ids in pieces])
    targets = vectors @ draw.normal(size=(SOURCE_DIM, DIM)) + means + 0.1 * draw.normal(size=(N, DIM)) + 2
    return vectors, counts, pieces, embedding, targets.astype(np.float32)


def features_of(vector: Any, count: int, pieces: list[int], embedding: Any) -> Any:
    """φ of one word, as the docstring has it."""
    length = np.linalg.norm(vector)
    x = vector / length if length else vector
    g = count / (count + 50)
    mean = embedding[pieces].mean(0) / NORM
    first, last = embedding[pieces[0]] / NORM, embedding[pieces[-1]] / NORM
    return np.concatenate([g * x, (1 - g) / 2 * x, mean, (1 - g) * mean, first / 2, last / 2]).astype(np.float64)


def rows_by_hand(case: Any) -> Any:
    """Ridge as ordinary least squares with extra equations, and an explicit mean."""
    vectors, counts, pieces, embedding, targets = case
    phi = np.stack([features_of(*word, embedding) for word in zip(vectors, counts, pieces, strict=True)])
    centred = phi - phi.mean(0)
    penalty = np.mean(np.linalg.svd(centred, compute_uv=False) ** 2) * min(centred.shape) / centred.shape[1]
    extended = np.vstack([centred, np.sqrt(penalty) * np.eye(centred.shape[1])])
    extended_targets = np.vstack([targets - targets.mean(0), np.zeros((centred.shape[1], DIM))])
    weights = np.linalg.lstsq(extended, extended_targets.astype(np.float64), rcond=None)[0]
    rows = targets.mean(0) + centred @ weights
    return rows * NORM / np.linalg.norm(rows, axis=1, keepdims=True)


def fit_form(vectors: Any, counts: Any, pieces: Any, embedding: Any, targets: Any, norm: float) -> FormRegression:
    base = np.vstack([embedding, targets])
    known = KnownWords(vectors, counts, np.arange(len(embedding), len(base)), base, pieces)
    sums = FormSums(vectors.shape[1], targets.shape[1])
    sums.add(known, np.arange(len(targets)), norm)
    return sums.fit(norm)


def test_it_is_a_ridge_regression_on_the_documented_features(case: Any) -> None:
    vectors, counts, pieces, embedding, targets = case
    fitted = fit_form(vectors, counts, pieces, embedding, targets, NORM)
    np.testing.assert_allclose(fitted.rows(vectors, counts, pieces, embedding), rows_by_hand(case), atol=2e-5)


def test_words_that_are_all_alike_get_their_mean_row() -> None:
    targets = np.array([[1.0, 2], [3, 6]], np.float32)
    fitted = fit_form(np.zeros((2, 3), np.float32), np.ones(2), [[0], [0]], np.ones((1, 2), np.float32), targets, 1.0)
    (row,) = fitted.rows(np.zeros((1, 3), np.float32), np.ones(1), [[0]], np.ones((1, 2), np.float32))
    np.testing.assert_allclose(row, np.array([1, 2]) / np.sqrt(5), rtol=1e-6)
