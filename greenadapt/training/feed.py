"""The steps of an epoch: from one table of examples, or from several that take turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from greenadapt.config import RunConfig, Sampling, SamplingConfig, TrainConfig
from greenadapt.storage.arrays import Array, BoolArray, IntArray
from greenadapt.storage.files import Json
from greenadapt.training.batches import Order, Table
from greenadapt.training.random_draws import Purpose, random_bits

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


@dataclass(frozen=True)
class Plan:
    """How a model is trained."""

    train: TrainConfig
    run: RunConfig
    seed: int


@dataclass(frozen=True, eq=False)
class Draw:
    """The examples of one step: ``items`` (b,) int64 of ``table``, and whether each is read in the expanded
    tokenization, ``expanded`` (b,) bool.
    """

    table: Table
    items: IntArray
    expanded: BoolArray
    epoch: int
    """How many times the table was gone through before, from 0."""
    task: str | None = None
    """What the model is told of whose examples they are; ``None`` where it does one task only."""


class Feed(Protocol):
    """What a model is trained on, step by step; all that is drawn is a function of the step's number."""

    @property
    def plan(self) -> Plan:
        """How it is trained."""

    @property
    def steps_an_epoch(self) -> int:
        """Optimiser steps of an epoch."""

    @property
    def n_steps(self) -> int:
        """Optimiser steps of the whole training."""

    @property
    def leaves_weights_out(self) -> bool:
        """Whether a step may use only a part of the model's weights."""

    @property
    def facts(self) -> Json:
        """What there is to say about it beyond the settings of the training and the tables' contents."""

    def draw(self, done: int) -> Draw:
        """The examples of the step after ``done`` steps."""

    def digest(self, update: Callable[[bytes], object]) -> None:
        """Give all that says what is trained on to ``update``, a hash's."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Batch after batch of ``table``, for ever: each pass over it has an order, and coins of the mixture, of its own,
    drawn from ``seed``.
    """

    table: Table
    train: TrainConfig
    seed: int
    _orders: dict[int, Order] = field(init=False, default_factory=dict)
    """That of the pass which was asked for last."""

    @property
    def n_batches(self) -> int:
        """How many batches a pass has, the last of which may be smaller."""
        n_items = self.table.n_items * (2 if self.train.mix == "both" else 1)
        return -(-n_items // self.train.batch_size)

    def draw(self, number: int, task: str | None = None) -> Draw:
        """The batch of a ``number``, from 0."""
        epoch, position = divmod(number, self.n_batches)
        size = self.train.batch_size
        if epoch not in self._orders:
            self._orders.clear()
            self._orders[epoch] = Order.of(self.table.n_items, self.train.mix, size, self.seed, epoch)
        order, among = self._orders[epoch], slice(position * size, (position + 1) * size)
        return Draw(self.table, order.items[among], order.expanded[among], epoch, task)


@dataclass(frozen=True, eq=False)
class OneTable:
    """One table, gone through once an epoch."""

    table: Table
    plan: Plan

    @property
    def steps_an_epoch(self) -> int:
        """As many as it takes to read every example once, or twice with ``mix="both"``."""
        return self._passes.n_batches

    @property
    def n_steps(self) -> int:
        """See ``Feed``."""
        return n_steps(self.plan.train, self.steps_an_epoch)

    @property
    def leaves_weights_out(self) -> bool:
        """Never."""
        return False

    @property
    def facts(self) -> Json:
        """The head."""
        return {"head": self.table.head}

    def draw(self, done: int) -> Draw:
        """See ``Feed``."""
        return self._passes.draw(done)

    def digest(self, update: Callable[[bytes], object]) -> None:
        """See ``Feed``."""
        self.table.digest(update)

    @cached_property
    def _passes(self) -> Passes:
        return Passes(self.table, self.plan.train, self.plan.seed)


@dataclass(frozen=True, eq=False)
class TaskTable:
    """What one of several tasks is trained on."""

    task: str
    table: Table
    n_examples: int
    """By which the task is drawn; the table may have them in several parts each."""


@dataclass(frozen=True, eq=False)
class ManyTables:
    """Several tasks, one of which makes each step (arXiv 1902.02671, section 4.1).

    Each is gone through in passes of its own, whose order depends on the seed, the task's name and the pass alone. An
    epoch is a number of steps.
    """

    tables: Sequence[TaskTable]
    sampling: SamplingConfig
    plan: Plan

    @property
    def steps_an_epoch(self) -> int:
        """``sampling.steps_per_epoch``, or as many as all tasks' passes have together."""
        return self.sampling.steps_per_epoch or sum(each.n_batches for each in self._passes)

    @property
    def n_steps(self) -> int:
        """See ``Feed``."""
        return n_steps(self.plan.train, self.steps_an_epoch)

    @property
    def leaves_weights_out(self) -> bool:
        """Where there are other tasks, theirs."""
        return len(self.tables) > 1

    @property
    def facts(self) -> Json:
        """The tasks, and how they are drawn."""
        tasks = [[each.task, each.table.head, each.n_examples] for each in self.tables]
        return {"tasks": tasks, "sampling": self.sampling.sampling, "steps_an_epoch": self.steps_an_epoch}

    def draw(self, done: int) -> Draw:
        """See ``Feed``."""
        number = int(self.schedule[done])
        return self._passes[number].draw(int(self._before[done]), self.tables[number].task)

    def digest(self, update: Callable[[bytes], object]) -> None:
        """See ``Feed``."""
        for each in self.tables:
            each.table.digest(update)

    @cached_property
    def schedule(self) -> IntArray:
        """The number of the task that makes each step: (n_steps,) int64."""
        sizes = [each.n_examples for each in self.tables]
        epochs = -(-self.n_steps // self.steps_an_epoch)  # fewer than were asked for where steps are limited
        return schedule(sizes, self.sampling, self.steps_an_epoch, self.n_steps, epochs, self.plan.seed)

    @cached_property
    def _before(self) -> IntArray:
        """How many steps the task of each step has made before it: (n_steps,) int64."""
        before = np.zeros(self.n_steps, np.int64)
        for number in range(len(self.tables)):
            steps = np.flatnonzero(self.schedule == number)
            before[steps] = np.arange(len(steps))
        return before

    @cached_property
    def _passes(self) -> list[Passes]:
        train, seed = self.plan.train, self.plan.seed
        return [Passes(each.table, train, task_seed(seed, each.task)) for each in self.tables]


def task_seed(seed: int, task: str) -> int:
    """A seed of a task's own, from 0 to 2^64 - 1: a function of the run's ``seed`` and the task's name."""
    return int(random_bits(1, seed, Purpose.TASK, *task.encode())[0])


def n_steps(train: TrainConfig, steps_an_epoch: int) -> int:
    """Optimiser steps of a training that has so many an epoch."""
    return min(train.epochs * steps_an_epoch, train.max_steps or train.epochs * steps_an_epoch)
