"""Rows that are padded with zeros."""

import numpy as np
import pytest

from greenadapt.vectors.cbow import memory_needed
from greenadapt.vectors.engines.padding import PIECE, padded, padded_width


@pytest.mark.parametrize(("dim", "width"), [(1, 64), (63, 64), (64, 64), (65, 128), (300, 320), (384, 384), (768, 768)])
def test_widths(dim: int, width: int) -> None:
    assert padded_width(dim) == width


def test_a_table_is_padded_with_zeros_or_is_itself() -> None:
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    wide = padded(table)
    assert (wide.shape, wide.dtype) == ((5, PIECE), np.float32)
    np.testing.assert_array_equal(wide[:, :3], table)
    assert not wide[:, 3:].any()
    assert padded(wide) is wide


def test_the_copies_count_as_memory() -> None:
    def tables(dim: int) -> int:
        return memory_needed(1000, 1000, dim, "fast") - memory_needed(0, 1000, dim, "fast")

    assert tables(300) - tables(320) == 2 * 4 * 1000 * 300
    assert memory_needed(9, 9, 300, "gensim") < memory_needed(9, 9, 320, "gensim")
