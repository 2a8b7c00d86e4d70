"""Put any number of examples through a model block by block, with any runtime."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from greenadapt.config import Pool
from greenadapt.store.arrays import Array, IntArray, offsets_of
from greenadapt.tasks.base import Feature, Features, Item
from greenadapt.workers import group, prefetch

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


def _largest(values: Sequence[Array], units: Sequence[IntArray], n_units: int) -> Array:
    """The largest of the ``values`` (m, k) of each unit, (n_units, k), -inf where it has none; ``units`` (m,) has the
    unit of each value, -1 for none.
    """
    if not values:
        return np.zeros((0, 0), np.float32)
    all_values, all_units = np.concatenate(values), np.concatenate(units)
    order = np.argsort(all_units, kind="stable")
    order = order[np.searchsorted(all_units[order], 0) :]
    units_with_pieces, begins = np.unique(all_units[order], return_index=True)
    largest = np.full((n_units, all_values.shape[1]), -np.inf, np.float32)
    if len(units_with_pieces):
        largest[units_with_pieces] = np.maximum.reduceat(all_values[order], begins)
    return largest


@dataclass(frozen=True, eq=False)
class Block:
    """Examples that go through a model together."""

    examples: Sequence[Item]
    inputs: list[Feature]
    """The distinct inputs of the examples."""
    input_indices: dict[str, list[list[int]]]
    """View → the indices of the inputs that each example has, in order."""
    ids: IntArray
    """All ids of the inputs and of the padding, ascending."""

    @classmethod
    def of(cls, examples: Sequence[Item], views: Sequence[str], pad_id: int) -> "Block":
        """Make a block of examples, in which equal inputs occur once."""
        index_of_input: dict[tuple[bytes, bytes], int] = {}
        inputs: list[Feature] = []
        input_indices: dict[str, list[list[int]]] = {view: [[] for _ in examples] for view in views}
        for view in views:
            for indices, example in zip(input_indices[view], examples, strict=True):
                for feature in getattr(example, view):
                    i = index_of_input.setdefault((feature.ids.tobytes(), feature.types.tobytes()), len(inputs))
                    if i == len(inputs):
                        inputs.append(feature)
                    indices.append(i)
        occurs = np.zeros(max([pad_id, *(int(feature.ids.max()) for feature in inputs)]) + 1, bool)
        occurs[pad_id] = True
        for feature in inputs:
            occurs[feature.ids] = True
        return cls(examples, inputs, input_indices, np.flatnonzero(occurs))

    def batches(self, max_tokens: int) -> Iterator[list[int]]:
        """The inputs that go through the model at once, the longest first."""
        batch: list[int] = []
        for i in sorted(range(len(self.inputs)), key=lambda i: len(self.inputs[i]), reverse=True):
            if batch and (len(batch) + 1) * len(self.inputs[batch[0]]) > max_tokens:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def outputs(self, logits: Mapping[int, Array]) -> list[ViewOutputs]:
        """The outputs of each example, from the logits of each input."""
        offsets = offsets_of(np.array([example.n_units for example in self.examples], np.int64))
        by_view: dict[str, list[Array]] = {}
        for view, indices_of_examples in self.input_indices.items():
            values = [logits[i] for indices in indices_of_examples for i in indices]
            units = [
                np.where(feature.units >= 0, feature.units + offset, -1)
                for offset, example in zip(offsets[:-1].tolist(), self.examples, strict=True)
                for feature in getattr(example, view)
            ]
            by_view[view] = np.split(_largest(values, units, offsets[-1]), offsets[1:-1])
        results = []
        for index, example in enumerate(self.examples):
            base, expanded = (by_view[view][index] if view in by_view else None for view in ("base", "expanded"))
            if len(by_view) == 2 and self.input_indices["base"][index] == self.input_indices["expanded"][index]:
                expanded = base
            results.append(ViewOutputs(base, expanded, example.example))
        return results


BLOCK_PIECES_CPU = 1 << 15
"""Pieces of a block that a CPU computes in a few seconds."""


class MemoryInput(Protocol):
    """Computes what a model with memory, or with word vectors, reads beside a batch."""

    def read(self, inputs: Features) -> dict[str, Array]:
        """The arguments beside ``inputs`` itself, whose ids are those of the model's whole vocabulary."""


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
    memory: MemoryInput | None = None
    """Of a model with memory or with word vectors."""
    task: str | None = None
    """The task to compute, of a torch model with several tasks."""

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views to compute."""
        return ("base", "expanded") if self.pool == "mean" else (self.pool,)


class Runner:
    """A model, and what computes its outputs; by default numpy arrays of the CPU."""

    @property
    def block_pieces(self) -> int:
        """Pieces of the examples whose outputs come together, one example at least."""
        return BLOCK_PIECES_CPU

    @property
    def batch_pieces(self) -> int | None:
        """Pieces that are best computed at once, padding included, at most; ``None``: as many as are allowed."""
        raise NotImplementedError

    @property
    def is_background(self) -> bool:
        """Whether its work is started in a thread of its own while outputs are used."""
        raise NotImplementedError

    def open(self, block: Block, settings: Inference) -> AbstractContextManager[Callable[[Features], Any]]:
        """A context with a function: a batch of the block's inputs → its rows, (b, n, k), or (b, 1, k) with one output
        per text, maybe not yet computed.
        """
        raise NotImplementedError

    def empty(self, n_rows: int, k: int) -> Array:
        """An array (n_rows, k) float32 that ``copy`` writes into."""
        return np.empty((n_rows, k), np.float32)

    def copy(self, rows: Any, into: Array) -> None:
        """Copy the rows of a batch, maybe later."""
        into[:] = rows

    def synchronizer(self) -> Callable[[], None]:
        """A function that blocks until the copies so far have finished."""
        return lambda: None


def pool_views(outputs: ViewOutputs, pool: Pool) -> Array:
    """One view's output, or the mean of both, equation 4 of arXiv 2004.03354: (n_units, k) float32."""
    views = {"base": [outputs.base], "expanded": [outputs.expanded], "mean": [outputs.base, outputs.expanded]}[pool]
    computed = [view for view in views if view is not None]
    if len(computed) < len(views):
        raise ValueError(f"the {pool} needs a view that was not computed")
    if computed[0] is computed[-1]:
        return computed[0]
    return (computed[0] + computed[1]) / np.float32(2)


def stream_task(runner: Runner, inputs: Iterable[Item], settings: Inference) -> Generator[ViewOutputs, None, None]:
    """Put inputs through a model, and yield their outputs in order.

    Works block by block, however many examples there are; within a block inputs of both views go through sorted by
    length, and equal ones once. While a block goes through, the next one is read from ``inputs``, in a thread; where
    the runner says so a second thread keeps the model at work while the outputs are used.
    """

    def size(item: Item) -> int:
        return sum(len(part) for view in settings.views for part in getattr(item, view))

    groups = group(inputs, size, runner.block_pieces, MOST_EXAMPLES)
    with closing(prefetch(Block.of(group, settings.views, settings.pad_id) for group in groups)) as blocks:
        started = ((block, *_start(runner, block, settings)) for block in blocks)
        with closing(prefetch(started) if runner.is_background else started) as started_blocks:
            for block, logits, synchronize in started_blocks:
                synchronize()
                yield from block.outputs(logits)


def _start(runner: Runner, block: Block, settings: Inference) -> tuple[dict[int, Array], Callable[[], None]]:
    """Start the model on a block. Returns the logits of each input, (n, k) with one output per piece, (1, k) with one
    per text, and a function that blocks until they are all computed.
    """
    lengths = [len(feature) for feature in block.inputs]
    batches = [*block.batches(min(settings.max_tokens, runner.batch_pieces or settings.max_tokens))]
    logits: dict[int, Array] = {}
    # One array for all batches: many would be strewn over the memory that each batch frees, which would grow.
    array: Array | None = None
    begin = 0
    with runner.open(block, settings) as call:
        for batch in batches:
            rows = call(Features.of([block.inputs[i] for i in batch]))
            b, n, k = rows.shape
            if array is None:
                is_per_piece = n == lengths[batch[0]]  # else per text
                n_rows = sum(len(part) * (lengths[part[0]] if is_per_piece else 1) for part in batches)
                array = runner.empty(n_rows, k)
            of_batch = array[begin : begin + b * n]
            begin += b * n
            runner.copy(rows.reshape(b * n, k), of_batch)
            for i, of_input in zip(batch, of_batch.reshape(b, n, k), strict=True):
                logits[i] = of_input[: lengths[i]]
        return logits, runner.synchronizer()
