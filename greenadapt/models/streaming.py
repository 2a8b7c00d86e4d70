"""Put any number of examples through a model block by block, with any runtime."""

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
    """The outputs for an example, (n_units, k) float32, in each view that was computed; k = 2, start and end, for QA.

    The output of a unit is the largest over its pieces, -inf if it has none. Both views are the same array if all
    inputs are equal.
    """

    base: Array | None
    expanded: Array | None
    example: Any = None


@dataclass(frozen=True, eq=False)
class Read:
    """The examples of a block for one task."""

    examples: list[Input]
    used: dict[str, list[list[int]]]
    """View → the indices of the block's inputs that each example has, in order."""

    def outputs(self, logits: Sequence[Array]) -> list[ViewOutputs]:
        """The outputs of each example, from the logits of each of the block's inputs."""
        reduced = {
            view: _reduce(
                self.examples,
                [getattr(example, view) for example in self.examples],
                [[logits[i] for i in indices] for indices in of_examples],
            )
            for view, of_examples in self.used.items()
        }
        if len(reduced) == 2:
            is_equal = [a == b for a, b in zip(self.used["base"], self.used["expanded"], strict=True)]
            pairs = zip(reduced["base"], reduced["expanded"], is_equal, strict=True)
            reduced["expanded"] = [a if equal else b for a, b, equal in pairs]
        absent = [None] * len(self.examples)
        rows = zip(reduced.get("base", absent), reduced.get("expanded", absent), self.examples, strict=True)
        return [ViewOutputs(base, expanded, example.example) for base, expanded, example in rows]


@dataclass(frozen=True, eq=False)
class Block:
    """Examples that go through a model together, of one task or of several that read the same entries."""

    inputs: list[Feature]
    """The distinct inputs of the examples."""
    read: dict[str, Read]
    """By task."""
    ids: IntArray
    """All ids of the inputs and of the padding, ascending."""

    @classmethod
    def of(cls, examples: Sequence[Mapping[str, Input]], names: Sequence[str], pad_id: int) -> "Block":
        """Make a block in which equal inputs, also of several tasks, occur once."""
        number: dict[tuple[bytes, bytes], int] = {}
        inputs: list[Feature] = []

        def numbers(features: Sequence[Feature]) -> list[int]:
            """The indices of the features among the distinct inputs."""
            indices = []
            for feature in features:
                key = (feature.ids.tobytes(), feature.types.tobytes())
                if key not in number:
                    number[key] = len(inputs)
                    inputs.append(feature)
                indices.append(number[key])
            return indices

        read = {}
        for task in examples[0]:
            views = [by_task[task] for by_task in examples]
            used = {view: [numbers(getattr(example, view)) for example in views] for view in names}
            read[task] = Read(views, used)
        occurs = np.zeros(max([pad_id, *(int(feature.ids.max()) for feature in inputs)]) + 1, bool)
        occurs[pad_id] = True
        for feature in inputs:
            occurs[feature.ids] = True
        return cls(inputs, read, np.flatnonzero(occurs))

    def groups(self) -> dict[tuple[str, ...], list[int]]:
        """Group the inputs by the tasks that read them: tasks → inputs, in order."""
        tasks: list[list[str]] = [[] for _ in self.inputs]
        for task, read in self.read.items():
            for i in {i for of_examples in read.used.values() for indices in of_examples for i in indices}:
                tasks[i].append(task)
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, names in enumerate(tasks):
            groups.setdefault(tuple(names), []).append(i)
        return groups


def blocks(
    examples: Iterable[Mapping[str, Input]], names: Sequence[str], pad_id: int, n_pieces: int
) -> Iterator[Block]:
    """Blocks of examples, in order; each example is given by task.

    The views ``names`` of a block have about ``n_pieces`` for the task with the most pieces; a block has at least one
    example.
    """

    def size(by_task: Mapping[str, Input]) -> int:
        return max(sum(len(part) for name in names for part in getattr(views, name)) for views in by_task.values())

    return (Block.of(group, names, pad_id) for group in grouped(examples, size, n_pieces, MOST_EXAMPLES))


def _reduce(block: Sequence[Input], features: Sequence[Sequence[Feature]], logits: list[list[Array]]) -> list[Array]:
    """The largest output over the pieces of each unit, of all examples of a block at once."""
    offsets = offsets_of(np.array([example.n_units for example in block], np.int64))
    flat = [output for of_example in logits for output in of_example]
    if not flat:
        return [np.zeros((0, 0), np.float32) for _ in block]
    values = np.concatenate(flat)
    units = np.concatenate(
        [
            np.where(feature.units >= 0, feature.units + offset, -1)
            for offset, of_example in zip(offsets[:-1].tolist(), features, strict=True)
            for feature in of_example
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
    """Maximum number of pieces in a batch, padding included, less on a CPU; a batch has at least one input."""
    pad_id: int
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Within what a torch model runs, such as accelerate's ``autocast``."""
    pool: Pool = "mean"
    """The view to compute; ``mean``: both."""
    block_pieces: int | None = None
    """Pieces of the examples whose outputs come together, one example at least; ``None``: as the runner says."""
    memory: "MemoryInput | None" = None
    """Computes the arguments of a torch model with memory."""
    task: str | None = None
    """The task to compute, of a torch model with several tasks."""

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views to compute."""
        return ("base", "expanded") if self.pool == "mean" else (self.pool,)


class Runner(Protocol):
    """A model, and what computes its outputs."""

    @property
    def block_pieces(self) -> int:
        """Pieces of the examples whose outputs come together."""

    @property
    def batch_pieces(self) -> int | None:
        """Pieces that are best computed at once, padding included, at most; ``None``: as many as are allowed."""

    @property
    def is_background(self) -> bool:
        """Whether its work is started in a thread of its own while outputs are used."""

    def opened(
        self, block: Block, run: Inference
    ) -> AbstractContextManager[Callable[[tuple[str, ...], Features], Mapping[str, Any]]]:
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
    computed = [view for view in views if view is not None]
    if len(computed) < len(views):
        raise ValueError(f"the {pool} needs a view that was not computed")
    if computed[0] is computed[-1]:
        return computed[0]
    mean: Array = (computed[0] + computed[1]) / np.float32(2)
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
    """Start the model on a block; returns the outputs by task, complete once the returned function was called."""
    lengths = [len(feature) for feature in block.inputs]
    limit = min(run.max_tokens, runner.batch_pieces or run.max_tokens)
    passes = [
        _Pass(tasks, batch) for tasks, inputs in block.groups().items() for batch in _batches(inputs, lengths, limit)
    ]
    filled = {task: _Filled(runner, [one for one in passes if task in one.tasks], lengths) for task in block.read}
    with runner.opened(block, run) as call:
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
