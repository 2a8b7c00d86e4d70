"""Nearest neighbours against a full sort, and the table of views."""

from pathlib import Path

import numpy as np
import pytest

from greenadapt.store.arrays import ArrayFile, row_blocks, write_arrays
from greenadapt.vectors.neighbours import find_nearest, project, vector_table
from greenadapt.vectors.word_vectors import WordVectors


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    import greenadapt.vectors.neighbours as module

    monkeypatch.setattr(module, "row_blocks", lambda vectors: row_blocks(vectors, 7 * 6 * 4))  # seven rows


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("k", [5, 50])
def test_nearest_equals_a_full_sort_of_memory_mapped_rows(tmp_path: Path, k: int) -> None:
    rng = np.random.default_rng(0)
    write_arrays(tmp_path / "x.safetensors", {"vectors": rng.standard_normal((50, 6)).astype(np.float32)})
    candidates = ArrayFile(tmp_path / "x.safetensors")["vectors"]
    queries = rng.standard_normal((9, 6))
    indices, cosines = find_nearest(queries, candidates, k)
    expected = (queries / np.linalg.norm(queries, axis=1, keepdims=True)) @ (
        candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
    ).T
    order = np.argsort(-expected, axis=1)[:, :k]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_allclose(cosines, np.take_along_axis(expected, order, axis=1), atol=1e-6)


@pytest.mark.usefixtures("_small_blocks")
def test_excluded_rows_are_left_out_and_missing_ones_marked() -> None:
    candidates = np.random.default_rng(1).standard_normal((20, 6)).astype(np.float32)
    all_but_three = [[i for i in range(20) if i not in (2, 11, 19)], [*range(16), -1]]
    indices, cosines = find_nearest(candidates[:2], candidates, 4, np.array(all_but_three))
    assert set(indices[0]) == {2, 11, 19, -1}
    assert indices[0, 3] == -1
    assert cosines[0, 3] == -np.inf
    assert set(indices[1]) == {16, 17, 18, 19}


@pytest.mark.usefixtures("_small_blocks")
def test_equal_cosines_come_by_index_and_zero_rows_have_cosine_zero() -> None:
    indices, cosines = find_nearest(np.ones((1, 2)), np.array([[0, 0], [2, 2], [1, 1], [-1, -1.0]]), 4)
    assert indices.tolist() == [[1, 2, 0, 3]]
    np.testing.assert_allclose(cosines, [[1, 1, 0, -1]], atol=1e-6)


def test_each_word_with_a_vector_has_the_nearest_others() -> None:
    angles = np.radians([0, 10, 100])
    matrix = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    vectors = WordVectors(["heart", "cardiac", "dtype"], np.ones(3, np.int64), matrix)
    table = vector_table(["dtype", "nowhere", "heart"], vectors, 5)
    assert [(row.word, [label for label, _ in row.neighbours]) for row in table] == [
        ("dtype", ["cardiac", "heart"]),
        ("heart", ["cardiac", "dtype"]),
    ]
    cosines = [cosine for _, cosine in table[1].neighbours]
    np.testing.assert_allclose(cosines, np.cos(np.radians([10, 100])), atol=1e-6)
    assert vector_table(["nowhere"], vectors, 5) == []


def test_the_plane_is_that_of_the_first_singular_values() -> None:
    draw, shape = np.random.default_rng(0), (8, 30)
    rows, also = draw.normal(size=shape) * np.linspace(5, 1, shape[1]), draw.normal(size=(4, shape[1]))
    ours, added, share = project(rows, also)
    u, s, vt = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    signs = np.sign((ours * u[:, :2]).sum(axis=0))
    np.testing.assert_allclose(ours * signs, u[:, :2] * s[:2], atol=1e-8)
    np.testing.assert_allclose(added * signs, (also - rows.mean(axis=0)) @ vt[:2].T, atol=1e-8)
    assert share == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())
