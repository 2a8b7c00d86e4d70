"""The steps of an epoch, from one dataset or several, and the random draws in them (arXiv 2004.03354, section 5.2).

All draws are counter-based: each is a function of its key and its index alone, so that neither batches nor processes
nor an interruption change what a run learns from.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from greenadapt.config import Mix, RunConfig, Sampling, SamplingConfig, TrainConfig
from greenadapt.storage.arrays import Array, BoolArray, IntArray
from greenadapt.storage.files import Json
from greenadapt.training.batches import Dataset


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


_UNTAUGHT = 0.2  # share of the steps before the first with inputs without labels
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
    if len(sizes) == 1 or config.sampling == "round-robin":
        return np.arange(n_steps, dtype=np.int64) % len(sizes)
    drawn = (random_bits(n_steps, seed, Purpose.TASK) >> (64 - _DOUBLE_BITS)) / 2.0**_DOUBLE_BITS
    tasks = np.empty(n_steps, np.int64)
    for begin in range(0, n_steps, steps_an_epoch):
        among = slice(begin, begin + steps_an_epoch)
        shares = probabilities(sizes, exponent(config.sampling, begin // steps_an_epoch + 1, epochs))
        # The last bound is left out: it is 1 but for rounding, and nothing may lie above it.
        tasks[among] = np.searchsorted(np.cumsum(shares)[:-1], drawn[among], side="right")
    return tasks


@dataclass(frozen=True)
class Plan:
    """How a model is trained."""

    train: TrainConfig
    run: RunConfig
    seed: int


@dataclass(frozen=True, eq=False)
class Draw:
    """The inputs of one step: ``items`` (b,) int64 of ``dataset``, and whether each is read in the expanded
    tokenization, ``expanded`` (b,) bool.
    """

    dataset: Dataset
    items: IntArray
    expanded: BoolArray
    epoch: int
    """How many times the dataset was gone through before, from 0."""


@dataclass(frozen=True, eq=False)
class Feed:
    """What a model is trained on, step by step: one dataset, or those of several tasks, one of which makes each step
    (arXiv 1902.02671, section 4.1).

    Each dataset is gone through in passes; their order and coins of the mixture depend on the seed, the task's name and
    the pass alone. An epoch is a number of steps. All that is drawn is a function of the step's number.
    """

    datasets: Sequence[Dataset]
    plan: Plan
    sampling: SamplingConfig = SamplingConfig()  # noqa: RUF009  (it is frozen)
    """How several tasks take turns."""
    unlabelled: Dataset | None = None
    """Inputs without labels, in pairs, for which steps have a further draw."""
    unlabelled_batch: int = 0
    """How many of them a step has."""
    _orders: dict[int, tuple[int, IntArray, BoolArray]] = field(init=False, default_factory=dict)
    """By number of the dataset, the pass that was asked for last, and its order."""
    _unlabelled_orders: dict[int, IntArray] = field(init=False, default_factory=dict)
    """By pass, only the last one."""

    @property
    def steps_an_epoch(self) -> int:
        """``sampling.steps_per_epoch``, or as many as it takes to go through all datasets once."""
        return self.sampling.steps_per_epoch or sum(self._n_batches)

    @property
    def n_steps(self) -> int:
        """Optimiser steps of the whole training."""
        n = self.plan.train.epochs * self.steps_an_epoch
        return min(n, self.plan.train.max_steps or n)

    @property
    def leaves_weights_out(self) -> bool:
        """Whether a step may use only a part of the model's weights, since others belong to other tasks."""
        return len(self.datasets) > 1

    @property
    def facts(self) -> Json:
        """What decides what is learnt, beyond the settings of the training and the datasets' contents."""
        if self.datasets[0].task is None:
            return {"head": self.datasets[0].head}
        tasks = [[each.task, each.head, each.n_examples] for each in self.datasets]
        return {"tasks": tasks, "sampling": self.sampling.sampling, "steps_an_epoch": self.steps_an_epoch}

    def draws(self, done: int) -> list[Draw]:
        """All inputs of the step after ``done`` steps: the labelled ones, then those without labels, if it has any."""
        return [self.draw(done), *self._unlabelled(done)]

    def draw(self, done: int) -> Draw:
        """The labelled inputs of the step after ``done`` steps."""
        number, size = int(self.schedule[done]), self.plan.train.batch_size
        epoch, position = divmod(int(self._before[done]), self._n_batches[number])
        items, expanded = self._order(number, epoch)
        among = slice(position * size, (position + 1) * size)
        return Draw(self.datasets[number], items[among], expanded[among], epoch)

    def _unlabelled(self, done: int) -> list[Draw]:
        """Those of a step once a fifth of all steps are made, gone through in passes of random order."""
        taught = done - math.ceil(_UNTAUGHT * self.n_steps)
        if self.unlabelled is None or taught < 0:
            return []
        n, size = self.unlabelled.n_items, self.unlabelled_batch
        epoch, position = divmod(taught, -(-n // size))
        if epoch not in self._unlabelled_orders:
            self._unlabelled_orders.clear()
            bits = random_bits(n, self.plan.seed, Purpose.UNLABELLED, epoch)
            self._unlabelled_orders[epoch] = np.argsort(bits, kind="stable")
        items = self._unlabelled_orders[epoch][position * size : (position + 1) * size]
        return [Draw(self.unlabelled, items, np.ones(len(items), bool), epoch)]

    def digest(self, update: Callable[[bytes], object]) -> None:
        """Give all that is trained on to ``update``, a hash's."""
        for each in self.datasets:
            each.digest(update)
        if self.unlabelled is not None:
            update(f"{self.unlabelled_batch} without labels".encode())
            self.unlabelled.digest(update)

    @cached_property
    def schedule(self) -> IntArray:
        """The number of the dataset that makes each step: (n_steps,) int64."""
        sizes = [each.n_examples for each in self.datasets]
        epochs = -(-self.n_steps // self.steps_an_epoch)  # fewer than were asked for if steps are limited
        return schedule(sizes, self.sampling, self.steps_an_epoch, self.n_steps, epochs, self.plan.seed)

    @cached_property
    def _before(self) -> IntArray:
        """How many steps the dataset of each step has made before it: (n_steps,) int64."""
        before = np.zeros(self.n_steps, np.int64)
        for number in range(len(self.datasets)):
            steps = np.flatnonzero(self.schedule == number)
            before[steps] = np.arange(len(steps))
        return before

    @cached_property
    def _n_batches(self) -> list[int]:
        """How many batches a pass over each dataset has, the last of which may be smaller."""
        train = self.plan.train
        views = 2 if train.mix == "both" else 1
        return [-(-each.n_items * views // train.batch_size) for each in self.datasets]

    def _order(self, number: int, epoch: int) -> tuple[IntArray, BoolArray]:
        found, items, expanded = self._orders.get(number, (None, None, None))
        if found != epoch or items is None or expanded is None:
            train, dataset, seed = self.plan.train, self.datasets[number], self.plan.seed
            if dataset.task is not None:
                seed = task_seed(seed, dataset.task)
            paired = train.agreement > 0
            items, expanded = epoch_order(dataset.n_items, train.mix, train.batch_size, seed, epoch, paired=paired)
            self._orders[number] = epoch, items, expanded
        return items, expanded


def task_seed(seed: int, task: str) -> int:
    """A seed of a task's own, from 0 to 2^64 - 1: a function of the run's ``seed`` and the task's name."""
    return int(random_bits(1, seed, Purpose.TASK, *task.encode())[0])
