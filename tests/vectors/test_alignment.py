"""The fitted map: against scipy and numpy, the spec's small cases, bad input, and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import linalg
from scipy.stats import ortho_group

from greenadapt.config import AlignConfig
from greenadapt.errors import InputError
from greenadapt.vectors.alignment import Alignment, check_casing, fit

LSTSQ = AlignConfig()


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def _double_matrix(monkeypatch: pytest.MonkeyPatch, X: Any, Y: Any, config: AlignConfig) -> Any:
    """W in float64, as it is before ``fit`` rounds it."""
    import greenadapt.vectors.alignment as module

    seen, solve = [], module._solve
    monkeypatch.setattr(module, "_solve", lambda *arguments: seen.append(solve(*arguments)) or seen[-1])
    fit(X, Y, config)
    return seen[0][0].T


def _assert_least_squares(ours: Any, expected: Any, X: Any, Y: Any) -> None:
    """Raise ``AssertionError`` if a column of Wᵀ differs by more than rounding may change in a least-squares fit.

    The error relative to the column is u κ (2 + (κ + 1) ‖residual‖ / (‖X‖ ‖column‖)) by QR or SVD (Higham 2002, theorem
    20.1), and u κ² as well if XᵀX is decomposed (section 20.4), as ``fit`` does below a condition of 10⁴. The width
    stands for the sums in it.
    """
    singular = np.linalg.svd(X, compute_uv=False)[: np.linalg.matrix_rank(X)]
    condition, length = singular[0] / singular[-1], np.linalg.norm(expected, axis=0)
    residual = np.linalg.norm(Y - X @ expected, axis=0) / (singular[0] * length)
    error = condition * (2 + (condition + 1) * residual) + (condition**2 if condition < 1e4 else 0)
    allowed = X.shape[1] * np.finfo(np.float64).eps / 2 * error * length
    np.testing.assert_array_less(np.linalg.norm(ours - expected, axis=0), allowed)


@pytest.mark.parametrize("smallest", [1, 1e-6])  # of well and badly conditioned vectors
@pytest.mark.parametrize(("n", "d_source", "d_target"), [(500, 40, 40), (60, 50, 7)])
def test_least_squares_equals_scipy_and_numpy(
    monkeypatch: pytest.MonkeyPatch, n: int, d_source: int, d_target: int, smallest: float
) -> None:
    rotation = ortho_group.rvs(d_source, random_state=3)
    X = (random(n, d_source) * np.geomspace(1, smallest, d_source) @ rotation).astype(np.float32)
    Y = random(n, d_target, seed=1).astype(np.float32)
    ours = _double_matrix(monkeypatch, X, Y, LSTSQ).T
    X, Y = X.astype(np.float64), Y.astype(np.float64)
    for expected in (linalg.lstsq(X, Y)[0], np.linalg.lstsq(X, Y)[0]):
        _assert_least_squares(ours, expected, X, Y)


@pytest.mark.parametrize("method", ["lstsq", "procrustes"])
def test_a_fit_that_goes_on_from_one_on_the_first_words_is_that_on_all(method: Any) -> None:
    X = (random(500, 40) * np.geomspace(1, 1e-3, 40)).astype(np.float32)
    Y, config = random(500, 30, seed=1), AlignConfig(method=method)
    first = fit(X[:300], Y[:300], config)
    resumed, whole = fit(X, Y, config, first=first), fit(X, Y, config)
    np.testing.assert_allclose(resumed.matrix, whole.matrix, rtol=1e-5, atol=1e-6)
    assert resumed.condition == pytest.approx(whole.condition)
    assert (resumed.residual, resumed.rank, resumed.n_overlap) == (pytest.approx(whole.residual), 40, 500)
    assert not np.allclose(first.matrix, whole.matrix, rtol=1e-5, atol=1e-6)


def test_a_rank_deficient_fit_is_the_minimum_norm_one_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    X = random(100, 4) @ random(4, 10, seed=1)
    Y = random(100, 6, seed=2)
    expected, _, rank, singular = np.linalg.lstsq(X, Y)
    alignment = fit(X, Y, LSTSQ)
    assert alignment.rank == rank == 4
    assert alignment.condition == pytest.approx(singular[0] / singular[3])
    assert alignment.warnings == ("the word vectors of the 100 overlapping words have rank 4, below their width 10",)
    _assert_least_squares(_double_matrix(monkeypatch, X, Y, LSTSQ).T, expected, X, Y)


def test_few_words_warn_or_are_refused() -> None:
    (warning,) = fit(random(6, 10), random(6, 3, seed=1), LSTSQ).warnings
    assert "6 words are in both vocabularies, fewer than the 10 dimensions" in warning
    with pytest.raises(InputError, match="1 word is in both vocabularies, at least 2 are needed: lower --min-count"):
        fit(random(1, 3), random(1, 3), LSTSQ)


def test_procrustes_recovers_a_rotation_and_equals_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    rotation = ortho_group.rvs(6, random_state=3)
    X = random(50, 6)
    config = AlignConfig(method="procrustes")
    np.testing.assert_allclose(_double_matrix(monkeypatch, X, X @ rotation.T, config), rotation, atol=1e-10)
    Y = random(50, 6, seed=1)
    expected, _ = linalg.orthogonal_procrustes(X, Y)
    np.testing.assert_allclose(_double_matrix(monkeypatch, X, Y, config).T, expected, atol=1e-10)


@pytest.mark.parametrize(("d_source", "d_target"), [(5, 8), (8, 5)])
def test_procrustes_of_unequal_widths_is_semi_orthogonal_and_best(d_source: int, d_target: int) -> None:
    X, Y = random(60, d_source), random(60, d_target, seed=1)
    W = fit(X, Y, AlignConfig(method="procrustes")).matrix
    assert W is not None
    product = W.T @ W if d_target > d_source else W @ W.T
    np.testing.assert_allclose(product, np.eye(5), atol=1e-6)
    gain = np.trace(W.T @ (Y.T @ X))
    assert gain == pytest.approx(linalg.svdvals(Y.T @ X).sum(), rel=1e-6)  # the maximum over semi-orthogonal maps


def test_identity_keeps_the_vectors_and_needs_equal_widths() -> None:
    X = random(20, 6).astype(np.float32)
    np.testing.assert_array_equal(fit(X, random(20, 6), AlignConfig(method="identity")).apply(X), X)
    with pytest.raises(InputError, match=r"6 wide and the model's rows 9, identity needs equal widths"):
        fit(X, random(20, 9), AlignConfig(method="identity"))


def test_random_rows_have_the_asked_distribution() -> None:
    Y = random(300, 64) * np.linspace(0.5, 2, 64) + np.linspace(-1, 1, 64)
    vectors = random(4000, 5, seed=2)
    bert = fit(random(300, 5), Y, AlignConfig(method="random")).apply(vectors)
    assert abs(bert.mean()) < 0.001
    assert bert.std() == pytest.approx(0.02, rel=0.01)
    matched = fit(random(300, 5), Y, AlignConfig(method="random", random_scale="matched")).apply(vectors)
    np.testing.assert_allclose(matched.mean(axis=0), Y.mean(axis=0), atol=0.15)
    np.testing.assert_allclose(matched.std(axis=0), Y.std(axis=0), rtol=0.06)


def test_a_random_row_belongs_to_its_word_and_seed() -> None:
    X, Y, vectors = random(10, 5), random(10, 8), random(50, 5, seed=2)
    alignment = fit(X, Y, AlignConfig(method="random", seed=3))
    rows = alignment.apply(vectors)
    np.testing.assert_array_equal(alignment.apply(vectors[30:])[4], rows[34])
    assert not np.array_equal(fit(X, Y, AlignConfig(method="random", seed=4)).apply(vectors), rows)


def test_rows_are_x_times_w_transposed_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    import greenadapt.vectors.alignment as module
    from greenadapt.store.arrays import row_blocks

    monkeypatch.setattr(module, "row_blocks", lambda vectors: row_blocks(vectors, 100))
    alignment = fit(random(30, 5), random(30, 7, seed=1), LSTSQ)
    vectors = random(101, 5, seed=2).astype(np.float32)
    assert alignment.matrix is not None
    rows = alignment.apply(vectors)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, vectors.astype(float) @ alignment.matrix.T.astype(float), atol=1e-5)
    assert alignment.apply(vectors[:0]).shape == (0, 7)


def test_vectors_of_another_width_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(3, 6\), the map was fitted on width 5"):
        fit(random(30, 5), random(30, 7), LSTSQ).apply(random(3, 6))


@pytest.mark.parametrize("method", ["lstsq", "random"])
def test_an_alignment_survives_its_file(tmp_path: Path, method: Any) -> None:
    alignment = fit(random(6, 8), random(6, 7), AlignConfig(method=method))
    alignment.save(tmp_path)
    loaded = Alignment.load(tmp_path)
    assert loaded.facts() == alignment.facts()
    vectors = random(9, 8, seed=5)
    np.testing.assert_array_equal(loaded.apply(vectors), alignment.apply(vectors))


def test_casing_of_vectors_and_model() -> None:
    lower = [f"word{chr(97 + i % 26)}{i}" for i in range(200)]
    with pytest.raises(InputError, match="none of the 200 words with letters has an upper-case one"):
        check_casing([*lower, "12", "."], lowercases=False, vocabulary_has_upper=True)
    assert check_casing([*lower, "Aspirin"], lowercases=False, vocabulary_has_upper=True) is None
    assert check_casing(lower[:199], lowercases=False, vocabulary_has_upper=True) is None  # too few to tell
    assert check_casing(lower, lowercases=False, vocabulary_has_upper=False) is None  # a model without upper case
    warning = check_casing(["Aspirin", "EGFR", "heart"], lowercases=True, vocabulary_has_upper=False)
    assert warning is not None
    assert warning.startswith("2 words with upper-case letters cannot be looked up")
