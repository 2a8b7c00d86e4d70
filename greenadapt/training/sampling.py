"""Which task makes each step of a training on several (arXiv 1902.02671, section 4.1)."""

from collections.abc import Sequence

import numpy as np

from greenadapt.arrays import Array
from greenadapt.config import Sampling, SamplingConfig
from greenadapt.sequence_table import IntArray
from greenadapt.training.mixture import Purpose, random_bits

_ANNEALED = 0.8  # by how much the exponent falls from the first epoch to the last
_DOUBLE_BITS = 53  # that a random float64 in [0, 1) is made of


def exponent(sampling: Sampling, epoch: int, epochs: int) -> float:
    """a of p_i ∝ N_i^a in an epoch e of E, from 1: a = 1 - 0.8 (e - 1) / (E - 1) under ``anneal``, 1 where E is 1.

    Raises ``ValueError`` for ``round-robin``, which draws nothing.
    """
    if sampling == "anneal":
        return 1 - _ANNEALED * (epoch - 1) / max(epochs - 1, 1)
    fixed = {"proportional": 1.0, "square-root": 0.5}
    if sampling not in fixed:
        raise ValueError(f"{sampling} has no exponent")
    return fixed[sampling]


def probabilities(sizes: Sequence[int], power: float) -> Array:
    """p_i = N_i^a / Σ_j N_j^a, a being ``power``, of tasks with ``sizes`` (n,) training examples: (n,) float64."""
    weights = np.asarray(sizes, np.float64) ** power
    shares: Array = weights / weights.sum()
    return shares


def schedule(
    sizes: Sequence[int], config: SamplingConfig, steps_an_epoch: int, n_steps: int, epochs: int, seed: int
) -> IntArray:
    """The number of the task that makes each step: (n_steps,) int64.

    Entry k is a function of k and the other arguments but ``n_steps``, so that a shorter training begins as a longer
    one does. Round robin goes through the tasks in their order, whatever the seed.
    """
    if config.sampling == "round-robin":
        return np.arange(n_steps, dtype=np.int64) % len(sizes)
    drawn = (random_bits(n_steps, seed, Purpose.TASK) >> (64 - _DOUBLE_BITS)) / 2.0**_DOUBLE_BITS
    tasks = np.empty(n_steps, np.int64)
    for begin in range(0, n_steps, steps_an_epoch):
        among = slice(begin, begin + steps_an_epoch)
        shares = probabilities(sizes, exponent(config.sampling, begin // steps_an_epoch + 1, epochs))
        # The last bound is left out: it is 1 but for rounding, and nothing may lie above it.
        tasks[among] = np.searchsorted(np.cumsum(shares)[:-1], drawn[among], side="right")
    return tasks
