"""In which of the two tokenizations a training example is read: a fair coin (arXiv 2004.03354, section 5.2).

All draws are counter-based: each is a function of its key and its index alone, whatever was drawn before, so that
neither batches nor processes nor an interruption change what a run learns from.
"""

from enum import IntEnum
from typing import Any

import numpy as np

from greenadapt.config import Mix
from greenadapt.storage.arrays import Array, BoolArray, IntArray


class Purpose(IntEnum):
    """What random numbers are for; those of different purposes are independent under one seed."""

    MIXTURE = 0
    ORDER = 1
    DROPOUT = 2
    FIXED_MIXTURE = 3
    MASKING = 4
    EVALUATION = 5
    TASK = 6
    UNLABELLED = 7


def random_bits(n: int, *key: int) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """(n,) uint64; entry i is a function of ``key`` and i, and the same on every machine (Philox)."""
    bits: Array = np.random.Philox(np.random.SeedSequence(key)).random_raw(n)
    return bits


def choose(mix: Mix, seed: int, epoch: int, indices: IntArray) -> BoolArray:
    """Whether each of ``indices`` (n,) is read in the expanded tokenization: (n,) bool.

    Indices are those of examples; under ``batch`` the number of each one's batch in the epoch, and under ``both`` each
    example is there twice, so that an odd index is an expanded one. ``fixed`` draws alike in every epoch.
    """
    if mix in ("base", "expanded"):
        return np.full(len(indices), mix == "expanded")
    if mix == "both":
        return np.asarray(indices % 2 == 1)
    if not len(indices):
        return np.zeros(0, bool)
    key = (seed, Purpose.FIXED_MIXTURE) if mix == "fixed" else (seed, Purpose.MIXTURE, epoch)
    heads: BoolArray = (random_bits(int(indices.max()) + 1, *key) >= 1 << 63)[indices]
    return heads


def epoch_order(
    n_items: int, mix: Mix, batch_size: int, seed: int, epoch: int, *, paired: bool = False
) -> tuple[IntArray, BoolArray]:
    """Which input is read when, (m,) int64, and whether in the expanded tokenization, (m,) bool.

    The order is drawn for (seed, epoch); with ``mix="both"`` each input is there twice, ``paired`` one after the other.
    """
    if paired:
        order = np.argsort(random_bits(n_items, seed, Purpose.ORDER, epoch), kind="stable")
        return np.repeat(order, 2), np.tile([False, True], n_items)
    n = n_items * (2 if mix == "both" else 1)
    order = np.argsort(random_bits(n, seed, Purpose.ORDER, epoch), kind="stable")
    items = order // 2 if mix == "both" else order
    keys = {"both": order, "batch": np.arange(n) // batch_size}.get(mix, items)
    return items, choose(mix, seed, epoch, keys)
