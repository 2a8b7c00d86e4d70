"""Datasets in arrays, batches, their division into parts, and the loss of each head.

Losses are sums over their terms, so that a step's mean does not depend on how the step is divided.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch.nn.functional import cross_entropy, mse_loss

from greenadapt.errors import InputError
from greenadapt.models.rows import Rows
from greenadapt.models.streaming import MemoryInput
from greenadapt.models.weights import share_memory
from greenadapt.store.arrays import Array, BoolArray, IntArray, offsets_of
from greenadapt.tasks.base import IGNORED, Feature, Features, Item


def loss_sum(head: str, output: Mapping[str, torch.Tensor], batch: "Batch") -> torch.Tensor:
    """Sum of the loss over its terms, () float32, for a model's output.

    ``TokenClassification``: -log p of the label of each labelled piece, ``targets`` (b, n), -100 for no label.
    ``SequenceClassification``: -log p of the class of each text for integer targets (b,), the squared error for floats.
    ``QuestionAnswering``: the mean of -log p of the first and of the last piece of each window, (b, 2); the softmax is
    over all pieces that are not padding.
    ``MaskedLM``: -log p of each of the t masked pieces, ``targets`` (t,), given their logits (t, n_rows).
    """
    targets = batch.targets
    if head == "QuestionAnswering":
        logits = torch.stack([output["start_logits"], output["end_logits"]], dim=1).float()
        logits = logits.masked_fill(batch.mask[:, None] == 0, -torch.inf)
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 2
    logits = output["logits"].float()
    if targets.is_floating_point():
        return mse_loss(logits.squeeze(-1), targets, reduction="sum")
    return cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum")


_PIECE_HEAD = "TokenClassification"


class Dataset(Protocol):
    """The training inputs of all examples, which have numbers in each tokenization."""

    @property
    def task(self) -> str | None:
        """The name of the task, if the model has several."""

    @property
    def n_examples(self) -> int:
        """The number of examples, by which tasks are drawn."""

    @property
    def head(self) -> str:
        """The kind of head, see ``loss_sum``."""

    @property
    def n_items(self) -> int:
        """The number of items; an example may be split into several."""

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        """The numbers of the inputs of ``items`` in the chosen views, the shortest first."""

    def lengths(self, numbers: IntArray) -> IntArray:
        """The number of pieces of each input."""

    def n_terms(self, numbers: IntArray, n_passes: int) -> int:
        """The number of terms of the loss for these inputs after ``n_passes`` passes over the dataset."""

    def batch(self, numbers: IntArray, n_passes: int) -> "Batch":
        """The batch of these inputs after ``n_passes`` passes over the dataset."""


@dataclass(frozen=True, eq=False)
class TaskDataset:
    """A ``Dataset``: labelled inputs of a task in a few arrays.

    Input f has ``ids[offsets[f]:offsets[f + 1]]``, and the same range of ``types`` and, for a head with an output per
    piece, of ``targets``; else its target is ``targets[f]``. Item i has ``counts[i, view]`` inputs, from
    ``firsts[i, view]`` on, in view 0, the base, and 1, the expanded tokenization.
    """

    ids: IntArray
    types: IntArray
    offsets: IntArray
    targets: Array
    firsts: IntArray
    counts: IntArray
    head: str
    pad_id: int
    rows: Rows
    memory: MemoryInput | None = None
    """Reads the inputs for the model's memory, if it has one."""
    task: str | None = None
    n_examples: int = 0

    @classmethod
    def of(
        cls, items: Sequence[Item], rows: Rows, head: str, pad_id: int, memory: MemoryInput | None = None
    ) -> "TaskDataset":
        """The dataset of ``items``, which have targets; equal views share their inputs.

        Raises ``InputError`` if there are no items.
        """
        if not items:
            raise InputError("there is nothing to train on", "give training files that have examples")
        features: list[Feature] = []
        firsts, counts = np.zeros((2, len(items), 2), np.int64)
        for i, item in enumerate(items):
            firsts[i], counts[i] = len(features), len(item.base)
            features += item.base
            if item.expanded is not item.base:
                firsts[i, 1], counts[i, 1] = len(features), len(item.expanded)
                features += item.expanded
        ids = np.concatenate([feature.ids for feature in features])
        types = np.concatenate([feature.types for feature in features]).astype(np.int8)
        targets = [np.asarray(feature.target) for feature in features]
        return cls(
            ids,
            types,
            offsets_of(np.array([len(feature) for feature in features], np.int64)),
            np.concatenate(targets) if head == _PIECE_HEAD else np.stack(targets),
            firsts,
            counts,
            head,
            pad_id,
            rows,
            memory,
        )

    @property
    def chance(self) -> float:
        """The mean loss of a model that reads nothing, and knows how frequent each class is, the mean of the numbers,
        or the number of pieces among which an answer begins and ends.
        """
        if self.head == "QuestionAnswering":
            return float(np.log(np.diff(self.offsets)).mean())
        if np.issubdtype(self.targets.dtype, np.floating):
            return float(self.targets.var())
        counts = np.unique(self.targets[self.targets != IGNORED], return_counts=True)[1]
        return float(np.log(counts.sum()) - (counts * np.log(counts)).sum() / max(counts.sum(), 1))

    @property
    def n_items(self) -> int:
        return len(self.counts)

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        view = expanded.astype(np.int64)
        firsts, counts = self.firsts[items, view], self.counts[items, view]
        numbers = np.repeat(firsts - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
        return numbers[np.argsort(self.lengths(numbers), kind="stable")]

    def lengths(self, numbers: IntArray) -> IntArray:
        return self.offsets[numbers + 1] - self.offsets[numbers]

    def n_terms(self, numbers: IntArray, n_passes: int = 0) -> int:
        """The number of terms of the loss for these inputs, the same in every pass."""
        if self.head != _PIECE_HEAD:
            return len(numbers)
        return int((self.targets[self._indices(numbers)] != IGNORED).sum())

    def batch(self, numbers: IntArray, n_passes: int = 0) -> "Batch":
        """The inputs, padded to the longest, the same in every pass."""
        indices, has_pieces = self._indices(numbers), self.head == _PIECE_HEAD
        inputs = Features(self.ids[indices], self.types[indices], self.lengths(numbers))
        targets = self.targets[indices if has_pieces else numbers]
        return Batch(
            torch.from_numpy(inputs.pad(self.rows.compact(inputs.ids), self.pad_id)),
            torch.from_numpy(inputs.mask),
            torch.from_numpy(inputs.pad(inputs.types, 0)),
            torch.from_numpy(inputs.pad(targets, IGNORED) if has_pieces else targets),
            {} if self.memory is None else share_memory(self.memory.read(inputs)),
        )

    def _indices(self, numbers: IntArray) -> IntArray:
        """The indices in ``ids`` of the pieces of some inputs, input by input."""
        lengths = self.lengths(numbers)
        return np.repeat(self.offsets[numbers] - offsets_of(lengths)[:-1], lengths) + np.arange(lengths.sum())


@dataclass(frozen=True, eq=False)
class Batch:
    """b inputs of n pieces; all tensors but ``targets`` are (b, n) int64.

    ``mask`` is 1 for pieces, 0 for padding. For the targets of each head see ``loss_sum``.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    types: torch.Tensor
    targets: torch.Tensor
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Further arguments of the model's ``forward``, by name."""

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device asynchronously."""
        if device.type == "cpu":
            return self

        def copy(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.pin_memory().to(device, non_blocking=True)

        tensors = {name: copy(value) for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        return replace(self, **tensors, extra={name: copy(tensor) for name, tensor in self.extra.items()})

    def inputs(self, has_segments: bool) -> dict[str, torch.Tensor]:
        """The arguments of the model's ``forward``."""
        inputs = {"input_ids": self.ids, "attention_mask": self.mask, **self.extra}
        return inputs | {"token_type_ids": self.types} if has_segments else inputs


@dataclass(frozen=True)
class BatchDivider:
    """Divides the inputs of a step into parts that go through the model one after the other."""

    max_tokens: int
    """Maximum number of pieces of a part with several inputs, padding included."""
    overhead: int
    """Fixed cost of a part, in pieces: more parts are worth it if they save more padding."""

    def divide(self, lengths: IntArray) -> list[slice]:
        """The cheapest division of inputs, given their lengths in ascending order; the part with the longest is first.

        A part of b inputs costs b times its longest, plus ``overhead``.
        """
        n = len(lengths)
        costs, begins = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
        for end in range(1, n + 1):
            longest = int(lengths[end - 1])
            earliest = max(0, end - max(1, self.max_tokens // longest))
            candidates = costs[earliest:end] + (end - np.arange(earliest, end)) * longest
            cheapest = int(candidates.argmin())
            costs[end], begins[end] = candidates[cheapest] + self.overhead, earliest + cheapest
        parts = []
        while n:
            parts.append(slice(int(begins[n]), n))
            n = int(begins[n])
        return parts
