"""Nearest neighbours against a full sort, and the table of views."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.store.arrays import ArrayFile, row_blocks, write_arrays
from greenadapt.vectors.neighbours import Space, nearest, neighbour_table, on_plane


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
    indices, cosines = nearest(queries, candidates, k)
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
    indices, cosines = nearest(candidates[:2], candidates, 4, np.array(all_but_three))
    assert set(indices[0]) == {2, 11, 19, -1}
    assert indices[0, 3] == -1
    assert cosines[0, 3] == -np.inf
    assert set(indices[1]) == {16, 17, 18, 19}


@pytest.mark.usefixtures("_small_blocks")
def test_the_transform_is_applied_to_the_candidates() -> None:
    rng = np.random.default_rng(2)
    candidates, matrix, queries = rng.standard_normal((40, 6)), rng.standard_normal((6, 4)), rng.standard_normal((3, 4))
    ours = nearest(queries, candidates, 5, transform=lambda block: block @ matrix)
    np.testing.assert_array_equal(ours[0], nearest(queries, candidates @ matrix, 5)[0])


def test_equal_cosines_come_by_index_and_zero_rows_have_cosine_zero() -> None:
    indices, cosines = nearest(np.ones((1, 2)), np.array([[0, 0], [2, 2], [1, 1], [-1, -1.0]]), 4)
    assert indices.tolist() == [[1, 2, 0, 3]]
    np.testing.assert_allclose(cosines, [[1, 1, 0, -1]], atol=1e-6)


def _spaces(width: int = 2) -> tuple[Space, Space]:
    """Word vectors at angles 0°, 10°, 100° and wordpieces at 90°, 95°, 190°, with one special row in the middle."""

    def at(*degrees: float) -> Any:
        angles = np.radians(degrees)
        return np.pad(np.stack([np.cos(angles), np.sin(angles)], axis=1), ((0, 0), (0, width - 2))).astype(np.float32)

    domain = Space(["heart", "cardiac", "dtype"], {"heart": 0, "cardiac": 1, "dtype": 2}, at(0, 10, 100)[:, :2])
    base = Space(["heart", "[CLS]", "the", "##ia"], {"heart": 0, "the": 2}, at(90, 92, 95, 190), hidden={1})
    return domain, base


def _quarter_turn(vectors: Any) -> Any:
    return vectors @ np.array([[0, 1], [-1, 0]], np.float32)


def test_the_table_has_every_view_of_a_word_that_is_in_both() -> None:
    domain, base = _spaces()
    table = neighbour_table(["heart"], domain, base, _quarter_turn, 2)
    assert [(row.view, [label for label, _ in row.neighbours]) for row in table] == [
        ("word vector → word vectors", ["cardiac", "dtype"]),
        ("word vector → wordpieces, before alignment", ["heart", "the"]),
        ("aligned → wordpieces", ["heart", "the"]),
        ("aligned → aligned", ["cardiac", "dtype"]),
        ("wordpiece → wordpieces", ["the", "##ia"]),
        ("wordpiece → aligned", ["heart", "cardiac"]),
    ]
    cosines = [cosine for _, cosine in table[2].neighbours]
    np.testing.assert_allclose(cosines, np.cos(np.radians([0, 5])), atol=1e-6)
    before = [cosine for _, cosine in table[1].neighbours]
    np.testing.assert_allclose(before, np.cos(np.radians([90, 95])), atol=1e-6)


def test_a_word_gets_the_views_of_the_spaces_it_is_in_in_the_order_asked_for() -> None:
    domain, base = _spaces()
    table = neighbour_table(["the", "nowhere", "dtype"], domain, base, _quarter_turn, 1)
    assert [row.word for row in table] == ["the", "the", "dtype", "dtype", "dtype", "dtype"]
    assert [row.view for row in table[:2]] == ["wordpiece → wordpieces", "wordpiece → aligned"]
    assert table[4].neighbours[0][0] == "##ia"  # dtype, turned from 100° to 190°


def test_the_plane_is_that_of_the_first_singular_values() -> None:
    draw, shape = np.random.default_rng(0), (8, 30)
    rows, also = draw.normal(size=shape) * np.linspace(5, 1, shape[1]), draw.normal(size=(4, shape[1]))
    ours, added, share = on_plane(rows, also)
    u, s, vt = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    signs = np.sign((ours * u[:, :2]).sum(axis=0))
    np.testing.assert_allclose(ours * signs, u[:, :2] * s[:2], atol=1e-8)
    np.testing.assert_allclose(added * signs, (also - rows.mean(axis=0)) @ vt[:2].T, atol=1e-8)
    assert share == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())
