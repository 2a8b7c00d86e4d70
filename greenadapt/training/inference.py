"""A model's outputs for every unit of every example, in both tokenizations, streamed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from greenadapt.arrays import Array
from greenadapt.config import Pool
from greenadapt.features import Feature, Views
from greenadapt.sequence_table import BoolArray, IntArray, offsets_of
from greenadapt.training.machine import too_large
from greenadapt.training.models import takes_segments
from greenadapt.training.rows import RowMap

_BLOCK_EXAMPLES = 512
_BLOCK_PIECES = 1 << 20


@dataclass(frozen=True)
class Inference:
    """How inputs go through a model."""

    max_tokens: int
    """Pieces, padding included, that go through the model at once; one input at least."""
    pad_id: int
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Within what the model runs, such as accelerate's ``autocast``."""
    pool: Pool = "mean"
    """Which views are wanted: both for ``mean``."""


@dataclass(frozen=True, eq=False)
class ViewOutputs:
    """The outputs for one example, (n_units, k) float32, by each view that was wanted; k = 2, start and end, for QA.

    A unit's output is the largest over the pieces that speak for it, -inf where none does. Both are the same array
    where all inputs are the same.
    """

    base: Array | None
    expanded: Array | None


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


def outputs(model: Any, row_map: RowMap, views: Iterable[Views], run: Inference) -> Iterator[ViewOutputs]:
    """Put examples through ``model``, in evaluation mode, and yield their outputs in order.

    Works block by block, however many examples there are; within a block inputs go through sorted by length, and
    equal ones once. Raises ``ResourceError`` where they do not fit into the memory of a GPU.
    """
    for block in _blocks(views):
        was_training = model.training
        model.eval()
        try:
            done = _block_outputs(model, row_map, block, run)
        finally:
            model.train(was_training)
        yield from done


def _blocks(views: Iterable[Views]) -> Iterator[list[Views]]:
    block: list[Views] = []
    n_pieces = 0
    for one in views:
        block.append(one)
        n_pieces += sum(map(len, one.base)) + sum(map(len, one.expanded))
        if len(block) >= _BLOCK_EXAMPLES or n_pieces >= _BLOCK_PIECES:
            yield block
            block, n_pieces = [], 0
    if block:
        yield block


def _block_outputs(model: Any, row_map: RowMap, block: Sequence[Views], run: Inference) -> list[ViewOutputs]:
    number: dict[tuple[bytes, bytes], int] = {}
    inputs: list[Feature] = []

    def numbers(features: Sequence[Feature]) -> list[int]:
        """Which of the distinct inputs each feature is."""
        found = []
        for feature in features:
            key = (feature.ids.tobytes(), feature.types.tobytes())
            if key not in number:
                number[key] = len(inputs)
                inputs.append(feature)
            found.append(number[key])
        return found

    named = {"base": run.pool != "expanded", "expanded": run.pool != "base"}
    chosen = {view: [numbers(getattr(one, view)) for one in block] for view, wanted in named.items() if wanted}
    logits = _logits(model, row_map, inputs, run)
    reduced = {
        view: _reduce(block, [getattr(one, view) for one in block], [[logits[i] for i in used] for used in each])
        for view, each in chosen.items()
    }
    if len(reduced) == 2:
        same = [a == b for a, b in zip(chosen["base"], chosen["expanded"], strict=True)]
        reduced["expanded"] = [
            a if is_same else b for a, b, is_same in zip(reduced["base"], reduced["expanded"], same, strict=True)
        ]
    none = [None] * len(block)
    return [ViewOutputs(*pair) for pair in zip(reduced.get("base", none), reduced.get("expanded", none), strict=True)]


def _reduce(block: Sequence[Views], features: Sequence[Sequence[Feature]], logits: list[list[Array]]) -> list[Array]:
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


def _logits(model: Any, row_map: RowMap, inputs: Sequence[Feature], run: Inference) -> list[Array]:
    """The model's output for each input: (n, k) with an output a piece, (1, k) with one a text."""
    logits: list[Array] = [np.zeros((0, 0), np.float32)] * len(inputs)
    for batch in _batches([len(feature) for feature in inputs], run.max_tokens):
        features = [inputs[i] for i in batch]
        try:
            rows = _forward(model, row_map, features, run)
        except torch.cuda.OutOfMemoryError:
            raise too_large(len(features), len(features[0]), run.max_tokens) from None
        for i, feature, row in zip(batch, features, rows, strict=True):
            logits[i] = row[: len(feature)]
    return logits


def _batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Which inputs go together, the longest first."""
    batch: list[int] = []
    for i in np.argsort(-np.asarray(lengths, np.int64), kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _forward(model: Any, row_map: RowMap, features: Sequence[Feature], run: Inference) -> Array:
    """(n_features, n, k) float32, or (n_features, 1, k)."""
    device = next(model.parameters()).device
    lengths = np.array([len(feature) for feature in features])
    is_piece = np.arange(lengths.max()) < lengths[:, None]
    arrays = {
        "input_ids": row_map.compact(_padded([feature.ids for feature in features], is_piece, run.pad_id)),
        "attention_mask": is_piece.astype(np.int64),
    }
    if takes_segments(model):
        arrays["token_type_ids"] = _padded([feature.types for feature in features], is_piece, 0)
    tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
    with torch.inference_mode(), run.autocast():
        result = model(**tensors)
    if "start_logits" in result:
        logits = torch.stack([result["start_logits"], result["end_logits"]], dim=-1)
    else:
        logits = result["logits"]
    if logits.ndim == 2:
        logits = logits[:, None]
    array: Array = logits.float().cpu().numpy()
    return array


def _padded(arrays: Sequence[IntArray], is_piece: BoolArray, fill: int) -> IntArray:
    """Arrays below each other, int64, with ``fill`` behind the shorter ones."""
    padded = np.full(is_piece.shape, fill, np.int64)
    padded[is_piece] = np.concatenate(arrays)
    return padded
