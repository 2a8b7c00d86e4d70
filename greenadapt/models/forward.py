"""A torch model's outputs for every unit of every example, in both tokenizations, streamed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from greenadapt.models.machine import too_large
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import BLOCK_PIECES_CPU, Block, Inference, Runner
from greenadapt.models.weights import StreamedRows, share_memory, takes_segments
from greenadapt.store.arrays import Array, IntArray
from greenadapt.tasks.base import Features

_BLOCK_PIECES_GPU = 1 << 20
# What a CPU computes at once, for each of its threads: of more, less stays in its caches.
_BATCH_PIECES_CPU = 1 << 10
# The most that one block of memory may have for the C library to keep it when it is freed (see mallopt(3)), less a bit.
_KEPT_BYTES = 31 << 20

HeadOutput = Mapping[str, torch.Tensor]
"""``logits``, (b, n, k) or (b, k), or ``start_logits`` and ``end_logits``, (b, n) each."""


@dataclass(frozen=True, eq=False)
class TorchRunner(Runner):
    """A torch model.

    On a GPU work is started and not waited for. Raises ``ResourceError`` if a batch does not fit into its memory.
    """

    model: Any
    rows: Rows | StreamedRows

    def __post_init__(self) -> None:
        if self.device.type == "cpu":
            _keep_memory()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def block_pieces(self) -> int:
        """As many as keep a GPU busy, or a few seconds' work of a CPU."""
        return _BLOCK_PIECES_GPU if self._is_gpu else BLOCK_PIECES_CPU

    @property
    def batch_pieces(self) -> int | None:
        """What a CPU's caches hold; on a GPU as many as are allowed."""
        return _BATCH_PIECES_CPU * torch.get_num_threads() if self.device.type == "cpu" else None

    @property
    def is_background(self) -> bool:
        """GPUs compute asynchronously."""
        return self._is_gpu

    @contextmanager
    def open(self, block: Block, settings: Inference) -> Iterator[Callable[[Features], torch.Tensor]]:
        """The model in evaluation mode, with the rows of the block."""
        was_training = self.model.training
        self.model.eval()
        try:
            row_of = np.zeros(block.ids[-1] + 1, np.int64)
            row_of[block.ids] = self.rows.compact(block.ids)
            has_segments = takes_segments(self.model)
            named = {} if settings.task is None else {"task": settings.task}

            def call(inputs: Features) -> torch.Tensor:
                arguments = _arguments(inputs, row_of, settings.pad_id, has_segments=has_segments)
                if settings.memory is not None:
                    arguments |= share_memory(settings.memory.read(inputs))
                try:
                    moved = {name: _move(tensor, self.device) for name, tensor in arguments.items()}
                    return _rows(self.model(**moved, **named))
                except torch.cuda.OutOfMemoryError:
                    lengths = inputs.lengths
                    raise too_large(len(lengths), int(lengths[0]), settings.max_tokens) from None

            with _use_device(self.device), torch.inference_mode(), settings.autocast():
                yield call
        finally:
            self.model.train(was_training)

    def empty(self, n_rows: int, k: int) -> Array:
        """In memory that a GPU can copy into."""
        return torch.empty((n_rows, k), pin_memory=self._is_gpu).numpy()

    def copy(self, rows: torch.Tensor, into: Array) -> None:
        """Copy without waiting for a GPU."""
        torch.from_numpy(into).copy_(rows, non_blocking=self._is_gpu)

    def synchronizer(self) -> Callable[[], None]:
        """A function that blocks until the GPU has finished the copies so far."""
        if not self._is_gpu:
            return super().synchronizer()
        return torch.cuda.current_stream(self.device).record_event().synchronize

    @property
    def _is_gpu(self) -> bool:
        return self.device.type == "cuda"


def _use_device(device: torch.device) -> AbstractContextManager[Any]:
    """``device`` as the current one of this thread; a thread of its own begins with the first GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _arguments(inputs: Features, row_of: IntArray, pad_id: int, *, has_segments: bool) -> dict[str, torch.Tensor]:
    """What the model is called with, each (b, n) int64; ``row_of`` has the model's row of each id."""
    arguments = {"input_ids": inputs.pad(row_of[inputs.ids], int(row_of[pad_id]))}
    if not inputs.is_piece.all():  # without a mask a model need not look for padding in it, for which a GPU would stop
        arguments["attention_mask"] = inputs.mask
    if has_segments:
        arguments["token_type_ids"] = inputs.pad(inputs.types, 0)
    return share_memory(arguments)


def _rows(output: HeadOutput) -> torch.Tensor:
    """(n_features, n, k) float32, or (n_features, 1, k), of what a head gives."""
    if "start_logits" in output:
        logits = torch.stack([output["start_logits"], output["end_logits"]], dim=-1)
    else:
        logits = output["logits"]
    if logits.ndim == 2:
        logits = logits[:, None]
    return logits.float()


def _move(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """``tensor`` on ``device``, if it is a GPU without waiting for it, by way of pinned memory."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _keep_memory() -> None:
    """Make glibc reuse freed blocks, which it otherwise returns to the system, whose new pages have to be zeroed.

    It keeps blocks up to the size of the largest one freed so far. Other C libraries are not affected.
    """
    torch.empty(_KEPT_BYTES, dtype=torch.uint8)
