"""The items of each step, from one dataset or several, and their random draws (arXiv 2004.03354, section 5.2).

- An *example* has labels in a file.
- An *item*, class ``Item`` in ``tasks.base``, is what is drawn, and what a batch counts: in NER a chunk of a sentence,
  in QA all chosen windows of a question, else an example.
- An *input*, class ``Feature`` there, is a sequence of an item that the model reads, in one tokenization.
- A *term* of the loss is a labelled or masked piece, else an input.

All draws are counter-based: a draw is a function of its key and its index, so that the batch size, the number of
processes and interruptions do not change it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from greenadapt.config import Mix, Sampling, SamplingConfig, TrainConfig
from greenadapt.store.arrays import Array, BoolArray, IntArray
from greenadapt.training.batches import Dataset


class Purpose(IntEnum):
    """The purpose of random numbers; those of different purposes are independent for the same seed."""

    MIXTURE = 0
    ORDER = 1
    DROPOUT = 2
    FIXED_MIXTURE = 3
    MASKING = 4
    EVALUATION = 5
    TASK = 6


def random_bits(n: int, *key: int) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """(n,) uint64; entry i is a function of ``key`` and i, on every machine (Philox)."""
    return np.random.Philox(np.random.SeedSequence(key)).random_raw(n)


def draw_pass(n_items: int, mix: Mix, batch_size: int, seed: int, n_passes: int) -> tuple[IntArray, BoolArray]:
    """The order of the items in the pass after ``n_passes`` earlier ones, (m,) int64, and whether each is read in the
    expanded tokenization, (m,) bool.

    The order is drawn for the seed and the pass. With ``mix="both"`` each item occurs twice, once in each tokenization.
    Else a coin is tossed: with ``sample`` for each item in each pass, with ``fixed`` once for each item, with ``batch``
    for each batch.
    """
    n = n_items * (2 if mix == "both" else 1)
    order = np.argsort(random_bits(n, seed, Purpose.ORDER, n_passes), kind="stable")
    if mix == "both":
        return order // 2, order % 2 == 1
    if mix in ("base", "expanded"):
        return order, np.full(n, mix == "expanded")
    key = (seed, Purpose.FIXED_MIXTURE) if mix == "fixed" else (seed, Purpose.MIXTURE, n_passes)
    coins = random_bits(n, *key) >= 1 << 63
    return order, coins[np.arange(n) // batch_size if mix == "batch" else order]


_ANNEALING = 0.8  # decrease of the exponent from the first epoch to the last
_MANTISSA_BITS = 53  # random bits of a float64 in [0, 1)


def exponent(sampling: Sampling, epoch: int, epochs: int) -> float:
    """The exponent a of p_i ∝ N_i^a in epoch e (from 1) of E: with ``anneal`` 1 - 0.8 (e - 1) / (E - 1), or 1 if E is
    1; ``round-robin`` has none.
    """
    if sampling == "anneal":
        return 1 - _ANNEALING * (epoch - 1) / max(epochs - 1, 1)
    return {"proportional": 1.0, "square-root": 0.5}[sampling]


def probabilities(sizes: Sequence[int], power: float) -> Array:
    """p_i = N_i^a / Σ_j N_j^a, where a is ``power``, for tasks with N = ``sizes`` (n,) training examples: (n,)
    float64.
    """
    weights = np.asarray(sizes, np.float64) ** power
    return weights / weights.sum()


def schedule(
    sizes: Sequence[int], config: SamplingConfig, steps_per_epoch: int, n_steps: int, epochs: int, seed: int
) -> IntArray:
    """The index of the task of each step: (n_steps,) int64.

    Entry k does not depend on ``n_steps``, so that a shorter training has the first steps of a longer one. Round robin
    does not depend on the seed.
    """
    if len(sizes) == 1 or config.sampling == "round-robin":
        return np.arange(n_steps, dtype=np.int64) % len(sizes)
    numbers = (random_bits(n_steps, seed, Purpose.TASK) >> (64 - _MANTISSA_BITS)) / 2.0**_MANTISSA_BITS
    tasks = np.empty(n_steps, np.int64)
    for begin in range(0, n_steps, steps_per_epoch):
        part = slice(begin, begin + steps_per_epoch)
        shares = probabilities(sizes, exponent(config.sampling, begin // steps_per_epoch + 1, epochs))
        # Without the last bound, which may be less than 1 due to rounding.
        tasks[part] = np.searchsorted(np.cumsum(shares)[:-1], numbers[part], side="right")
    return tasks


@dataclass(frozen=True, eq=False)
class SampledBatch:
    """The items of a step: ``items`` (b,) int64 of ``dataset``, and whether each is read in the expanded tokenization,
    ``expanded`` (b,) bool.
    """

    dataset: Dataset
    items: IntArray
    expanded: BoolArray
    n_passes: int
    """The number of earlier passes over the dataset."""


@dataclass(frozen=True, eq=False)
class BatchSampler:
    """Draws the items of each step of a training, from one dataset, or from those of several tasks, where each step is
    for one task (arXiv 1902.02671, section 4.1).

    A dataset is read in passes; the order and the mixture of tokenizations in a pass depend only on the seed, the
    task's name and the pass. An epoch is a number of steps. All draws are a function of the step's number.
    """

    datasets: Sequence[Dataset]
    train: TrainConfig
    seed: int
    sampling: SamplingConfig = SamplingConfig()  # noqa: RUF009  (it is frozen)
    """How the task of a step is chosen."""
    _orders: dict[int, tuple[int, IntArray, BoolArray]] = field(init=False, default_factory=dict)
    """Index of the dataset → its last pass, and the order of that."""

    @property
    def steps_per_epoch(self) -> int:
        """``sampling.steps_per_epoch``, by default the number of batches of all datasets."""
        return self.sampling.steps_per_epoch or sum(self._n_batches)

    @property
    def n_steps(self) -> int:
        """The number of optimizer steps of the training."""
        n = self.train.epochs * self.steps_per_epoch
        return min(n, self.train.max_steps or n)

    def draw(self, step: int) -> SampledBatch:
        """The items of a step, from 0."""
        dataset_index, train = int(self.schedule[step]), self.train
        dataset, size = self.datasets[dataset_index], train.batch_size
        n_passes, position = divmod(int(self._n_earlier_steps[step]), self._n_batches[dataset_index])
        if dataset_index not in self._orders or self._orders[dataset_index][0] != n_passes:
            seed = self.seed
            if dataset.task is not None:  # a task's own seed, from 0 to 2^64 - 1
                seed = int(random_bits(1, seed, Purpose.TASK, *dataset.task.encode())[0])
            self._orders[dataset_index] = n_passes, *draw_pass(dataset.n_items, train.mix, size, seed, n_passes)
        _, items, expanded = self._orders[dataset_index]
        part = slice(position * size, (position + 1) * size)
        return SampledBatch(dataset, items[part], expanded[part], n_passes)

    @cached_property
    def schedule(self) -> IntArray:
        """The index of the dataset of each step: (n_steps,) int64."""
        sizes = [dataset.n_examples for dataset in self.datasets]
        epochs = -(-self.n_steps // self.steps_per_epoch)  # fewer than in the settings if steps are limited
        return schedule(sizes, self.sampling, self.steps_per_epoch, self.n_steps, epochs, self.seed)

    @cached_property
    def _n_earlier_steps(self) -> IntArray:
        """The number of earlier steps with the dataset of each step: (n_steps,) int64."""
        n_earlier = np.zeros(self.n_steps, np.int64)
        for dataset_index in range(len(self.datasets)):
            steps = np.flatnonzero(self.schedule == dataset_index)
            n_earlier[steps] = np.arange(len(steps))
        return n_earlier

    @cached_property
    def _n_batches(self) -> list[int]:
        """The number of batches of a pass over each dataset; the last may be smaller."""
        train = self.train
        views = 2 if train.mix == "both" else 1
        return [-(-dataset.n_items * views // train.batch_size) for dataset in self.datasets]
