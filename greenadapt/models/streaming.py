"""Examples of any number put through a model block by block, whatever computes its outputs."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from greenadapt.config import Pool
from greenadapt.storage.arrays import Array, IntArray, offsets_of
from greenadapt.tasks.base import Feature, Features, Input
from greenadapt.workers import ahead, grouped

if TYPE_CHECKING:
    from greenadapt.models.weights import MemoryInput


MOST_EXAMPLES = 4096
"""In a block."""


@dataclass(frozen=True, eq=False)
class ViewOutputs:
    """The outputs for one example, (n_units, k) float32, by each view that was wanted; k = 2, start and end, for QA.

    A unit's output is the largest over the pieces that speak for it, -inf if none does. Both are the same array
    where all inputs are the same.
    """

    base: Array | None
    expanded: Array | None
    example: Any = None


@dataclass(frozen=True, eq=False)
class Read:
    """What one task reads of a block."""

    examples: list[Input]
    used: dict[str, list[list[int]]]
    """View → which of the block's inputs each example has, in order."""

    def outputs(self, logits: Sequence[Array]) -> list[ViewOutputs]:
        """Those of each example, from those of each of the block's inputs."""
        reduced = {
            view: _reduce(
                self.examples,
                [getattr(one, view) for one in self.examples],
                [[logits[i] for i in numbers] for numbers in each],
            )
            for view, each in self.used.items()
        }
        if len(reduced) == 2:
            same = [a == b for a, b in zip(self.used["base"], self.used["expanded"], strict=True)]
            pairs = zip(reduced["base"], reduced["expanded"], same, strict=True)
            reduced["expanded"] = [a if is_same else b for a, b, is_same in pairs]
        none = [None] * len(self.examples)
        each = zip(reduced.get("base", none), reduced.get("expanded", none), self.examples, strict=True)
        return [ViewOutputs(base, expanded, one.example) for base, expanded, one in each]


@dataclass(frozen=True, eq=False)
class Block:
    """Examples that go through a model together, of one task or of several that read the same entries."""

    inputs: list[Feature]
    """The different inputs that they have."""
    read: dict[str, Read]
    """By task."""
    ids: IntArray
    """All that occur in an input, ascending, and that of the padding."""

    @classmethod
    def of(cls, examples: Sequence[Mapping[str, Input]], names: Sequence[str], pad_id: int) -> "Block":
        """Find out which inputs are equal, also those of several tasks, so that one of them goes through."""
        number: dict[tuple[bytes, bytes], int] = {}
        inputs: list[Feature] = []

        def numbers(features: Sequence[Feature]) -> list[int]:
            """Which of the different inputs each feature is."""
            found = []
            for feature in features:
                key = (feature.ids.tobytes(), feature.types.tobytes())
                if key not in number:
                    number[key] = len(inputs)
                    inputs.append(feature)
                found.append(number[key])
            return found

        read = {}
        for task in examples[0]:
            views = [one[task] for one in examples]
            read[task] = Read(views, {view: [numbers(getattr(one, view)) for one in views] for view in names})
        occurs = np.zeros(max([pad_id, *(int(feature.ids.max()) for feature in inputs)]) + 1, bool)
        occurs[pad_id] = True
        for feature in inputs:
            occurs[feature.ids] = True
        return cls(inputs, read, np.flatnonzero(occurs))

    def groups(self) -> dict[tuple[str, ...], list[int]]:
        """Tasks → the inputs that these and no others read, in order; every input is in one group."""
        tasks: list[list[str]] = [[] for _ in self.inputs]
        for task, read in self.read.items():
            for i in {i for each in read.used.values() for numbers in each for i in numbers}:
                tasks[i].append(task)
        found: dict[tuple[str, ...], list[int]] = {}
        for i, names in enumerate(tasks):
            found.setdefault(tuple(names), []).append(i)
        return found


def blocks(
    examples: Iterable[Mapping[str, Input]], names: Sequence[str], pad_id: int, n_pieces: int
) -> Iterator[Block]:
    """Examples in order, each in the views of every task that reads it, so many that the views of these ``names`` have
    about ``n_pieces`` for the task that has the most, one at least.
    """

    def size(one: Mapping[str, Input]) -> int:
        return max(sum(len(feature) for name in names for feature in getattr(views, name)) for views in one.values())

    return (Block.of(each, names, pad_id) for each in grouped(examples, size, n_pieces, MOST_EXAMPLES))


def _reduce(block: Sequence[Input], features: Sequence[Sequence[Feature]], logits: list[list[Array]]) -> list[Array]:
    """The largest output over the pieces of each unit, of all examples of a block at once."""
    offsets = offsets_of(np.array([one.n_units for one in block], np.int64))
    flat = [output for each in logits for output in each]
    if not flat:
        return [np.zeros((0, 0), np.float32) for _ in block]
    values = np.concatenate(flat)
    units = np.concatenate(
        [
            np.where(feature.units >= 0, feature.units + offset, -1)
            for offset, each in zip(offsets[:-1].tolist(), features, strict=True)
            for feature in each
        ]
    )
    order = np.argsort(units, kind="stable")
    order = order[np.searchsorted(units[order], 0) :]
    spoken, begins = np.unique(units[order], return_index=True)
    reduced = np.full((offsets[-1], values.shape[1]), -np.inf, np.float32)
    if len(spoken):
        reduced[spoken] = np.maximum.reduceat(values[order], begins)
    return np.split(reduced, offsets[1:-1])


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
    with closing(ahead(blocks(examples, run.views, run.pad_id, n_pieces))) as following:
        started = ((block, _start(runner, block, run)) for block in following)
        with closing(ahead(started) if runner.is_background else started) as running:
            for block, (filled, wait) in running:
                wait()
                outputs = {task: read.outputs(filled[task].arrays()) for task, read in block.read.items()}
                yield from (dict(zip(outputs, entry, strict=True)) for entry in zip(*outputs.values(), strict=True))


def stream_task(runner: Runner, inputs: Iterable[Input], run: Inference) -> Iterator[ViewOutputs]:
    """Put inputs of a single task through a model, and yield their outputs in order; see ``streamed``."""
    with closing(streamed(runner, ({"": item} for item in inputs), run)) as entries:
        for entry in entries:
            yield entry[""]


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


def _start(runner: Runner, block: Block, run: Inference) -> tuple[dict[str, _Filled], Callable[[], None]]:
    """Put the inputs of a block through the model: by task what may still be computed, and what waits for that."""
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
        return filled, runner.waiter()


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
