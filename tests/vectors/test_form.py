"""Rows from form and context, against a ridge regression written another way."""

from typing import Any

import numpy as np
import pytest

from greenadapt.vectors import rows
from greenadapt.vectors.rows import FormMap, fit_form

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
    means = np.stack([embedding[own].mean(0) for own in pieces])
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
    wanted = np.vstack([targets - targets.mean(0), np.zeros((centred.shape[1], DIM))])
    weights = np.linalg.lstsq(extended, wanted.astype(np.float64), rcond=None)[0]
    rows = targets.mean(0) + centred @ weights
    return rows * NORM / np.linalg.norm(rows, axis=1, keepdims=True)


def test_it_is_a_ridge_regression_on_the_documented_features(case: Any) -> None:
    vectors, counts, pieces, embedding, targets = case
    fitted = fit_form(vectors, counts, pieces, embedding, targets, NORM)
    np.testing.assert_allclose(fitted.rows(vectors, counts, pieces, embedding), rows_by_hand(case), atol=2e-5)


def test_blocks_change_nothing_but_rounding(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, counts, pieces, embedding, targets = case
    whole = fit_form(vectors, counts, pieces, embedding, targets, NORM)
    monkeypatch.setattr(rows, "_FORM_BLOCK", 7)
    cut = fit_form(vectors, counts, pieces, embedding, targets, NORM)
    for name in ("weights", "offset"):
        np.testing.assert_allclose(getattr(cut, name), getattr(whole, name), atol=1e-5)
    again = FormMap(whole.weights, whole.offset, NORM).rows(vectors, counts, pieces, embedding)
    assert again.shape == (N, DIM)
    np.testing.assert_allclose(np.linalg.norm(again, axis=1), NORM, rtol=1e-5)


def test_a_rare_word_is_known_by_its_form_and_a_frequent_one_by_its_contexts() -> None:
    """Words whose rows are their pieces' mean if they are rare, and a map of their vectors if they are frequent."""
    draw = np.random.default_rng(0)
    n = 4000
    vectors = draw.normal(size=(n, SOURCE_DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    embedding = draw.normal(size=(N_ROWS, DIM)).astype(np.float32)
    pieces = draw.integers(0, N_ROWS, (n, 3)).tolist()
    counts = np.where(np.arange(n) % 2, 1, 100_000)
    means = embedding[np.array(pieces)].mean(1)
    mapped = vectors @ draw.normal(size=(SOURCE_DIM, DIM))
    targets = np.where(counts[:, None] == 1, means, mapped)
    rows = fit_form(vectors, counts, pieces, embedding, targets, NORM).rows(vectors, counts, pieces, embedding)

    def cosine(a: Any, b: Any) -> Any:
        return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)

    assert cosine(rows, means)[counts == 1].mean() > 0.9 > 0.3 > cosine(rows, mapped)[counts == 1].mean()
    assert cosine(rows, mapped)[counts > 1].mean() > 0.9 > 0.3 > cosine(rows, means)[counts > 1].mean()


def test_words_that_are_all_alike_get_their_mean_row() -> None:
    targets = np.array([[1.0, 2], [3, 6]], np.float32)
    fitted = fit_form(np.zeros((2, 3), np.float32), np.ones(2), [[0], [0]], np.ones((1, 2), np.float32), targets, 1.0)
    (row,) = fitted.rows(np.zeros((1, 3), np.float32), np.ones(1), [[0]], np.ones((1, 2), np.float32))
    np.testing.assert_allclose(row, np.array([1, 2]) / np.sqrt(5), rtol=1e-6)
