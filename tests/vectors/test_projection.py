"""The plane of the two principal axes, against singular values."""

import numpy as np
import pytest

from greenadapt.vectors.neighbours import on_plane


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_the_plane_is_that_of_the_first_singular_values(shape: tuple[int, int]) -> None:
    draw = np.random.default_rng(0)
    rows, also = draw.normal(size=shape) * np.linspace(5, 1, shape[1]), draw.normal(size=(4, shape[1]))
    ours, others, share = on_plane(rows, also)
    u, s, vt = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    signs = np.sign((ours * u[:, :2]).sum(axis=0))
    np.testing.assert_allclose(ours * signs, u[:, :2] * s[:2], atol=1e-8)
    np.testing.assert_allclose(others * signs, (also - rows.mean(axis=0)) @ vt[:2].T, atol=1e-8)
    assert share == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())


def test_equal_rows_are_one_point() -> None:
    ours, _, share = on_plane(np.ones((3, 4), np.float32), np.zeros((1, 4), np.float32))
    assert not ours.any()
    assert share == 1
