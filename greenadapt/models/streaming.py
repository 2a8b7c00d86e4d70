"""Examples of any number put through a model block by block, whatever computes its outputs."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from greenadapt.config import Pool
from greenadapt.models.example_blocks import Block, ViewOutputs, blocks
from greenadapt.storage.arrays import Array
from greenadapt.tasks.base import Features, Input
from greenadapt.workers import ahead

if TYPE_CHECKING:
    from greenadapt.models.tensors import MemoryInput

BLOCK_PIECES_CPU = 1 << 15
"""Pieces of a block that a CPU computes in a few seconds."""


@dataclass(frozen=True)
class Inference:
    """How inputs go through a model."""

    max_tokens: int
    """Pieces, padding included, that go through the model at once at most, fewer on a CPU; one input at least."""
    pad_id: int
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Within what a torch model runs, such as accelerate's ``autocast``."""
    pool: Pool = "mean"
    """Which views are wanted: both for ``mean``."""
    block_pieces: int | None = None
    """Pieces of the examples whose outputs come together, one example at least; ``None``: as the runner says."""
    memory: "MemoryInput | None" = None
    """Where a torch model has a memory, what goes into that."""
    task: str | None = None
    """Of a torch model with several tasks, the one whose outputs are wanted."""

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views that are wanted."""
        return ("base", "expanded") if self.pool == "mean" else (self.pool,)


class Runner(Protocol):
    """A model, and what computes its outputs."""

    @property
    def block_pieces(self) -> int:
        """Pieces of the examples whose outputs come together."""

    @property
    def batch_pieces(self) -> int:
        """Pieces that are best computed at once, padding included, at most."""

    @property
    def is_background(self) -> bool:
        """Whether its work is started in a thread of its own while outputs are used."""

    def opened(self, block: Block) -> AbstractContextManager[Callable[[tuple[str, ...], Features], Mapping[str, Any]]]:
        """Within it: tasks and a batch of the block's inputs → for each task its rows, (b, n, k), or (b, 1, k) with one
        output per text, maybe not yet computed.
        """

    def empty(self, n_rows: int, k: int) -> Array:
        """An array (n_rows, k) float32 that ``copy`` writes into."""

    def copy(self, rows: Any, into: Array) -> None:
        """Copy the rows of a batch, maybe later."""

    def waiter(self) -> Callable[[], None]:
        """What waits until all that was copied so far is there."""


def pooled(outputs: ViewOutputs, pool: Pool) -> Array:
    """One view's output, or the mean of both, equation 4 of arXiv 2004.03354: (n_units, k) float32."""
    views = {"base": [outputs.base], "expanded": [outputs.expanded], "mean": [outputs.base, outputs.expanded]}[pool]
    wanted = [view for view in views if view is not None]
    if len(wanted) < len(views):
        raise ValueError(f"the {pool} needs a view that was not computed")
    if wanted[0] is wanted[-1]:
        return wanted[0]
    mean: Array = (wanted[0] + wanted[1]) / np.float32(2)
    return mean


def streamed(
    runner: Runner, examples: Iterable[Mapping[str, Input]], run: Inference
) -> Generator[dict[str, ViewOutputs], None, None]:
    """Put examples of one or several tasks through a model, and yield their outputs in order.

    Works block by block, however many examples there are; within a block inputs of both views go through sorted by
    length, and equal ones once. While a block goes through, the next one is read from ``examples``, in a thread; where
    the runner says so a second thread keeps the model at work while the outputs are used.
    """
    n_pieces = run.block_pieces or runner.block_pieces
    with closing(ahead(blocks(examples, run.views, run.pad_id, n_pieces))) as read:
        started = ((block, _start(runner, block, run)) for block in read)
        with closing(ahead(started) if runner.is_background else started) as running:
            for block, logits in running:
                made = {task: one.outputs(logits.arrays(task)) for task, one in block.read.items()}
                yield from (dict(zip(made, each, strict=True)) for each in zip(*made.values(), strict=True))


@dataclass(frozen=True)
class _Pass:
    """Inputs that go through together, the longest first, and the tasks that read them."""

    tasks: tuple[str, ...]
    inputs: list[int]


class _Filled:
    """One task's outputs in one array, batches end to end: many small ones would be strewn over the memory that each
    batch frees, and it would grow.
    """

    def __init__(self, runner: Runner, passes: Sequence[_Pass], lengths: Sequence[int]) -> None:
        self._runner, self._passes, self._lengths = runner, passes, lengths
        self._values, self._filled = np.zeros((0, 0), np.float32), 0
        self._has_pieces = False

    def add(self, rows: Any) -> None:
        """Copy the next batch's (b, n, k), or (b, 1, k) with one output per text."""
        b, n, k = rows.shape
        if not self._filled:
            self._has_pieces = n == self._lengths[self._passes[0].inputs[0]]
            self._values = self._runner.empty(sum(len(one.inputs) * self._width(one) for one in self._passes), k)
        self._runner.copy(rows.reshape(b * n, k), self._values[self._filled : self._filled + b * n])
        self._filled += b * n

    def arrays(self) -> list[Array]:
        """Of each feature of the block: (n, k) with one output per piece, (1, k) with one per text, (0, k) if the task
        does not read it.
        """
        logits: list[Array] = [self._values[:0]] * len(self._lengths)
        begin = 0
        for one in self._passes:
            width = self._width(one)
            for i in one.inputs:
                logits[i] = self._values[begin : begin + (self._lengths[i] if self._has_pieces else 1)]
                begin += width
        return logits

    def _width(self, one: _Pass) -> int:
        return self._lengths[one.inputs[0]] if self._has_pieces else 1


@dataclass(frozen=True, eq=False)
class _Logits:
    """The model's output for each input of a block, which may still be computed."""

    filled: dict[str, _Filled]
    """By task."""
    wait: Callable[[], None]

    def arrays(self, task: str) -> list[Array]:
        """See ``_Filled.arrays``."""
        self.wait()
        return self.filled[task].arrays()


def _start(runner: Runner, block: Block, run: Inference) -> _Logits:
    """Put the inputs of a block through the model."""
    lengths = [len(feature) for feature in block.inputs]
    limit = min(run.max_tokens, runner.batch_pieces)
    passes = [
        _Pass(tasks, batch) for tasks, inputs in block.groups().items() for batch in _batches(inputs, lengths, limit)
    ]
    filled = {task: _Filled(runner, [one for one in passes if task in one.tasks], lengths) for task in block.read}
    with runner.opened(block) as call:
        for one in passes:
            for task, rows in call(one.tasks, Features.of([block.inputs[i] for i in one.inputs])).items():
                filled[task].add(rows)
        return _Logits(filled, runner.waiter())


def _batches(inputs: Sequence[int], lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Which of the ``inputs`` go together, the longest first; ``lengths`` has those of all."""
    batch: list[int] = []
    for i in sorted(inputs, key=lengths.__getitem__, reverse=True):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
