"""A model's outputs for every unit of every example, in both tokenizations, streamed."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from greenadapt.config import Pool
from greenadapt.models.embedding_rows import RowMap
from greenadapt.models.example_blocks import Block, ViewOutputs, blocks
from greenadapt.models.machine import too_large
from greenadapt.models.tensors import Features, MemoryInput
from greenadapt.models.weights import takes_segments
from greenadapt.storage.arrays import Array, IntArray
from greenadapt.tasks.features import Input
from greenadapt.workers import ahead

_BLOCK_PIECES_CPU, _BLOCK_PIECES_GPU = 1 << 15, 1 << 20
# What a CPU computes at once, for each of its threads: of more, less stays in its caches.
_BATCH_PIECES_CPU = 1 << 10
# The most that one block of memory may have for the C library to keep it when it is freed (see mallopt(3)), less a bit.
_KEPT_BYTES = 31 << 20
# Where the model's work is only started by what calls it, a thread of its own does so.
_IN_BACKGROUND = ("cuda",)

HeadOutput = Mapping[str, torch.Tensor]
"""``logits``, (b, n, k) or (b, k), or ``start_logits`` and ``end_logits``, (b, n) each."""


@dataclass(frozen=True)
class Inference:
    """How inputs go through a model."""

    max_tokens: int
    """Pieces, padding included, that go through the model at once at most, fewer on a CPU; one input at least."""
    pad_id: int
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Within what the model runs, such as accelerate's ``autocast``."""
    pool: Pool = "mean"
    """Which views are wanted: both for ``mean``."""
    block_pieces: int | None = None
    """Pieces of the examples whose outputs come together, one example at least; ``None``: a few seconds' work on a CPU,
    and as many on a GPU as keep it busy."""
    memory: MemoryInput | None = None
    """Where the model has a memory, what goes into that."""
    task: str | None = None
    """Of a model with several tasks, the one whose outputs are wanted; see ``outputs``."""

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views that are wanted."""
        return ("base", "expanded") if self.pool == "mean" else (self.pool,)


@dataclass(frozen=True, eq=False)
class Called:
    """A model, and how it is called."""

    model: Any
    row_map: RowMap
    call: Callable[[tuple[str, ...], Mapping[str, torch.Tensor]], Mapping[str, HeadOutput]]
    """Tasks and the arguments of ``forward`` → the output of each task."""


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


def outputs(model: Any, row_map: RowMap, views: Iterable[Input], run: Inference) -> Iterator[ViewOutputs]:
    """Put examples through ``model``, in evaluation mode, and yield each one's outputs, in order; see ``streamed``."""
    named = {} if run.task is None else {"task": run.task}

    def call(_: Sequence[str], arguments: Mapping[str, torch.Tensor]) -> Mapping[str, HeadOutput]:
        return {"": model(**arguments, **named)}

    with closing(streamed(Called(model, row_map, call), ({"": one} for one in views), run)) as made:
        for each in made:
            yield each[""]


def shared_outputs(
    model: Any, row_map: RowMap, examples: Iterable[Mapping[str, Input]], run: Inference
) -> Iterator[dict[str, ViewOutputs]]:
    """Put examples, each as an input of every task by its name, through a ``MultitaskModel``; yield outputs by task.

    An input that several tasks read, with the same pieces and segments, goes once through the layers that no adapter of
    these tasks touches (arXiv 1902.02671, section 2.2: the parameters that tasks share), and from there through each
    task's own. See ``streamed`` for the rest.
    """

    def call(tasks: tuple[str, ...], arguments: Mapping[str, torch.Tensor]) -> Mapping[str, HeadOutput]:
        found: Mapping[str, HeadOutput] = model.each(tasks, **arguments)
        return found

    return streamed(Called(model, row_map, call), examples, run)


def streamed(
    called: Called, examples: Iterable[Mapping[str, Input]], run: Inference
) -> Generator[dict[str, ViewOutputs], None, None]:
    """Put examples of one or several tasks through a model, in evaluation mode, and yield their outputs in order.

    Works block by block, however many examples there are; within a block inputs go through sorted by length, and
    equal ones once. While a block goes through, the next one is read from ``examples``, in a thread; on a GPU a second
    thread keeps the model at work while the outputs are used. Raises ``ResourceError`` if a batch does not fit into
    the memory of a GPU.
    """
    device = _device(called.model)
    if device.type == "cpu":
        _keep_memory()
    n_pieces = run.block_pieces or (_BLOCK_PIECES_GPU if device.type == "cuda" else _BLOCK_PIECES_CPU)
    with closing(ahead(blocks(examples, run.views, run.pad_id, n_pieces))) as read:
        started = _started(called, read, run)
        with closing(ahead(started) if device.type in _IN_BACKGROUND else started) as running:
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

    def __init__(self, passes: Sequence[_Pass], lengths: Sequence[int]) -> None:
        self._passes, self._lengths = passes, lengths
        self._values, self._filled = torch.empty((0, 0)), 0
        self._has_pieces = False

    def add(self, rows: torch.Tensor) -> None:
        """Copy the next batch's (b, n, k), or (b, 1, k) with one output per text, without waiting for a GPU."""
        is_cuda = rows.device.type == "cuda"
        if not self._filled:
            self._has_pieces = rows.shape[1] == self._lengths[self._passes[0].inputs[0]]
            n_rows = sum(len(one.inputs) * self._width(one) for one in self._passes)
            self._values = torch.empty((n_rows, rows.shape[2]), pin_memory=is_cuda)
        rows = rows.flatten(0, 1)
        self._values[self._filled : self._filled + len(rows)].copy_(rows, non_blocking=is_cuda)
        self._filled += len(rows)

    def arrays(self) -> list[Array]:
        """Of each feature of the block: (n, k) with one output per piece, (1, k) with one per text, (0, k) if the task
        does not read it.
        """
        values = self._values.numpy()
        logits: list[Array] = [values[:0]] * len(self._lengths)
        begin = 0
        for one in self._passes:
            width = self._width(one)
            for i in one.inputs:
                logits[i] = values[begin : begin + (self._lengths[i] if self._has_pieces else 1)]
                begin += width
        return logits

    def _width(self, one: _Pass) -> int:
        return self._lengths[one.inputs[0]] if self._has_pieces else 1


@dataclass(frozen=True, eq=False)
class _Logits:
    """The model's output for each input of a block, which a GPU may still be computing."""

    filled: dict[str, _Filled]
    """By task."""
    done: Any
    """``torch.cuda.Event`` after which they are there; ``None`` if they are."""

    def arrays(self, task: str) -> list[Array]:
        """See ``_Filled.arrays``."""
        if self.done is not None:
            self.done.synchronize()
        return self.filled[task].arrays()


def _started(called: Called, read: Iterable[Block], run: Inference) -> Generator[tuple[Block, _Logits], None, None]:
    model = called.model
    for block in read:
        was_training = model.training
        model.eval()
        try:
            logits = _start(called, block, run)
        finally:
            model.train(was_training)
        yield block, logits


def _start(called: Called, block: Block, run: Inference) -> _Logits:
    """Put the inputs of a block through the model, without waiting for a GPU."""
    row_of = np.zeros(block.ids[-1] + 1, np.int64)
    row_of[block.ids] = called.row_map.compact(block.ids)
    device, has_segments = _device(called.model), takes_segments(called.model)
    lengths = [len(feature) for feature in block.inputs]
    passes = _passes(block, lengths, run.max_tokens, device)
    filled = {task: _Filled([one for one in passes if task in one.tasks], lengths) for task in block.read}
    with _on(device), torch.inference_mode(), run.autocast():
        for one in passes:
            features = [block.inputs[i] for i in one.inputs]
            inputs = Features.of(features)
            arguments = _arguments(inputs, row_of, run.pad_id, has_segments=has_segments)
            if run.memory is not None:
                arguments |= run.memory.read(inputs)
            try:
                moved = {name: _moved(tensor, device) for name, tensor in arguments.items()}
                for task, output in called.call(one.tasks, moved).items():
                    filled[task].add(_rows(output))
            except torch.cuda.OutOfMemoryError:
                raise too_large(len(features), len(features[0]), run.max_tokens) from None
    done = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None
    return _Logits(filled, done)


def _passes(block: Block, lengths: Sequence[int], max_tokens: int, device: torch.device) -> list[_Pass]:
    cached = _BATCH_PIECES_CPU * torch.get_num_threads() if device.type == "cpu" else max_tokens
    limit = min(max_tokens, cached)
    return [
        _Pass(tasks, batch) for tasks, inputs in block.groups().items() for batch in _batches(inputs, lengths, limit)
    ]


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """``device`` as the current one of this thread; a thread of its own begins with the first GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


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


def _arguments(inputs: Features, row_of: IntArray, pad_id: int, *, has_segments: bool) -> dict[str, torch.Tensor]:
    """What the model is called with, each (b, n) int64; ``row_of`` has the model's row of each id."""
    arguments = {"input_ids": inputs.padded(row_of[inputs.ids], int(row_of[pad_id]))}
    if not inputs.is_piece.all():  # without a mask a model need not look for padding in it, for which a GPU would stop
        arguments["attention_mask"] = inputs.mask
    if has_segments:
        arguments["token_type_ids"] = inputs.padded(inputs.types, 0)
    return arguments


def _rows(output: HeadOutput) -> torch.Tensor:
    """(n_features, n, k) float32, or (n_features, 1, k), of what a head gives."""
    if "start_logits" in output:
        logits = torch.stack([output["start_logits"], output["end_logits"]], dim=-1)
    else:
        logits = output["logits"]
    if logits.ndim == 2:
        logits = logits[:, None]
    return logits.float()


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """``tensor`` on ``device``, if it is a GPU without waiting for it, by way of pinned memory."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _keep_memory() -> None:
    """Have what one layer frees kept for the next one, in place of given back to the system and zeroed again.

    glibc keeps blocks up to the size of the largest that was freed so far; elsewhere this does nothing.
    """
    torch.empty(_KEPT_BYTES, dtype=torch.uint8)


def _device(model: Any) -> torch.device:
    device: torch.device = next(model.parameters()).device
    return device
