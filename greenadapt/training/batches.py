"""Which examples make an optimizer step, in which parts they go through the model, and the loss of each head.

Losses are sums over their terms, so that a step's mean does not depend on how the step is cut.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn.functional import cross_entropy, mse_loss

from greenadapt.errors import InputError
from greenadapt.models.rows import RowMap
from greenadapt.models.weights import MemoryInput
from greenadapt.storage.arrays import Array, BoolArray, IntArray, offsets_of
from greenadapt.tasks.base import IGNORED, Features, Input, flattened


def n_terms(head: str, targets: Any) -> int:
    """How many terms the loss has for ``targets``, an array or a tensor: labelled pieces, texts, or windows."""
    return int((targets != IGNORED).sum()) if head == "TokenClassification" else len(targets)


def loss_sum(head: str, output: Mapping[str, torch.Tensor], targets: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum over the terms, () float32, for what a model returns for a batch of b inputs of n pieces.

    ``TokenClassification``: -log p of the label of each labelled piece, ``targets`` (b, n), -100 if there is none.
    ``SequenceClassification``: -log p of the class of each text for whole numbers, the squared error for others, (b,).
    ``QuestionAnswering``: the mean of -log p of the first and of the last piece of each window, (b, 2), where the
    probabilities are those of all pieces that are not padding. ``mask`` (b, n) is 1 where a piece is not padding.
    ``MaskedLM``: -log p of each of the t pieces that were masked, ``targets`` (t,), for logits (t, n_rows) of these.
    """
    if head == "QuestionAnswering":
        logits = torch.stack([output["start_logits"], output["end_logits"]], dim=1).float()
        logits = logits.masked_fill(mask[:, None] == 0, -torch.inf)
        return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / 2
    logits = output["logits"].float()
    if targets.is_floating_point():
        return mse_loss(logits.squeeze(-1), targets, reduction="sum")
    return cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def divergence_sum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """½ (KL(p‖q) + KL(q‖p)) = ½ Σ (p - q) (log p - log q) of the softmax p and q of two logits (n, k), summed over n.

    The gradient goes to both, as in R-Drop (arXiv 2106.14448). Returns () float32.
    """
    log_p, log_q = first.float().log_softmax(-1), second.float().log_softmax(-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2


def teaching_sum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """KL(t‖p) + KL(t‖q) of the softmax p and q of two logits (n, k), t that of their mean, summed over n.

    t is a teacher, without a gradient. Returns () float32.
    """
    log_t = ((first + second).detach().float() / 2).log_softmax(-1)
    views = torch.stack([first, second]).float().log_softmax(-1)
    return (log_t.exp() * (log_t - views)).sum()


def squared_teaching_sum(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """(p - t)² + (q - t)² of two predicted numbers (n, 1), t their mean, summed over n; no gradient goes through t."""
    views = torch.stack([first, second]).float()
    return (views - views.mean(dim=0).detach()).square().sum()


_PIECE_HEAD = "TokenClassification"


class Dataset(Protocol):
    """What a model is trained on: the inputs of all examples; those of either tokenization go by number."""

    @property
    def task(self) -> str | None:
        """Whose examples they are, if the model has several tasks."""

    @property
    def n_examples(self) -> int:
        """How many examples there are, by which tasks are drawn."""

    @property
    def head(self) -> str:
        """By what the loss goes, see ``loss_sum``."""

    @property
    def n_items(self) -> int:
        """How many inputs they have; an example may be cut into several."""

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        """Numbers of the inputs that examples have in the chosen views, the shortest first."""

    def lengths(self, numbers: IntArray) -> IntArray:
        """Pieces of each input."""

    def n_pieces(self, numbers: IntArray) -> int:
        """How many pieces of these inputs go through the model, without padding."""

    def n_terms(self, numbers: IntArray, epoch: int) -> int:
        """How many terms the loss has for these inputs in an epoch, from 0."""

    def batch(self, numbers: IntArray, epoch: int) -> "Batch":
        """The inputs as they go through the model in an epoch."""

    def digest(self, update: Callable[[bytes], object]) -> None:
        """Give all that says what is trained on to ``update``, a hash's."""


@dataclass(frozen=True, eq=False)
class TaskDataset:
    """Labelled inputs of one task in a few arrays.

    Input f has ``ids[offsets[f]:offsets[f + 1]]`` and as many ``types``; its targets lie in the same places for a head
    with one output per piece, else in ``targets[f]``. Example i has as inputs ``counts[i, view]`` from
    ``firsts[i, view]`` on, view 0 in the base and 1 in the expanded tokenization.
    """

    ids: IntArray
    types: IntArray
    offsets: IntArray
    targets: Array
    firsts: IntArray
    counts: IntArray
    head: str
    pad_id: int
    rows: RowMap
    memory: MemoryInput | None = None
    """What goes into the model's memory, if it has one."""
    task: str | None = None
    n_examples: int = 0

    @classmethod
    def of(
        cls, items: Sequence[Input], rows: RowMap, head: str, pad_id: int, memory: MemoryInput | None = None
    ) -> "TaskDataset":
        """The inputs of ``items``, which all have targets; examples whose views are the same share them.

        Raises ``InputError`` if there are no items.
        """
        if not items:
            raise InputError("there is nothing to train on", "give training files that have examples")
        features, firsts, counts = flattened(items)
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
    def n_items(self) -> int:
        """How many inputs there are."""
        return len(self.counts)

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        """Numbers of the inputs that examples have in the chosen views, the shortest first."""
        view = expanded.astype(np.int64)
        firsts, counts = self.firsts[items, view], self.counts[items, view]
        numbers = np.repeat(firsts - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
        return numbers[np.argsort(self.lengths(numbers), kind="stable")]

    def lengths(self, numbers: IntArray) -> IntArray:
        """Pieces of each input."""
        return self.offsets[numbers + 1] - self.offsets[numbers]

    def n_pieces(self, numbers: IntArray) -> int:
        """How many pieces these inputs have."""
        return int(self.lengths(numbers).sum())

    def n_terms(self, numbers: IntArray, epoch: int = 0) -> int:
        """How many terms the loss has for these inputs, in any epoch."""
        if self.head != _PIECE_HEAD:
            return len(numbers)
        return n_terms(self.head, self.targets[self._places(numbers)])

    def batch(self, numbers: IntArray, epoch: int = 0) -> "Batch":
        """The inputs below each other, padded to the longest, alike in any epoch."""
        places, has_pieces = self._places(numbers), self.head == _PIECE_HEAD
        inputs = Features(self.ids[places], self.types[places], self.lengths(numbers))
        targets = self.targets[places if has_pieces else numbers]
        return Batch(
            torch.from_numpy(inputs.padded(self.rows.compact(inputs.ids), self.pad_id)),
            torch.from_numpy(inputs.mask),
            torch.from_numpy(inputs.padded(inputs.types, 0)),
            torch.from_numpy(inputs.padded(targets, IGNORED) if has_pieces else targets),
            {} if self.memory is None else self.memory.read(inputs),
        )

    def digest(self, update: Callable[[bytes], object]) -> None:
        """Give all that says what is trained on to ``update``, a hash's."""
        for array in (self.ids, self.types, self.offsets, self.targets, self.firsts, self.counts):
            update(array.tobytes())

    def _places(self, numbers: IntArray) -> IntArray:
        """Where in the table the pieces of some inputs lie, input by input."""
        lengths = self.lengths(numbers)
        return np.repeat(self.offsets[numbers] - offsets_of(lengths)[:-1], lengths) + np.arange(lengths.sum())


@dataclass(frozen=True, eq=False)
class Batch:
    """b inputs of n pieces that go through the model together; all (b, n) int64 but ``targets``, see ``loss_sum``."""

    ids: torch.Tensor
    mask: torch.Tensor
    types: torch.Tensor
    targets: torch.Tensor
    extra: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """What the model is called with besides, by name."""

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device, without waiting for it."""
        if device.type == "cpu":
            return self

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.pin_memory().to(device, non_blocking=True)

        tensors = {name: moved(value) for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        return replace(self, **tensors, extra={name: moved(tensor) for name, tensor in self.extra.items()})

    def loss_sum(self, head: str, output: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Sum over the terms, () float32, of what the model returns; see ``losses``."""
        return loss_sum(head, output, self.targets, self.mask)

    def inputs(self, has_segments: bool) -> dict[str, torch.Tensor]:
        """The arguments of the model's ``forward``."""
        inputs = {"input_ids": self.ids, "attention_mask": self.mask, **self.extra}
        return inputs | {"token_type_ids": self.types} if has_segments else inputs


@dataclass(frozen=True)
class Cut:
    """By what a step is cut into parts."""

    max_tokens: int
    """Pieces, padding included, that a part may have; one input at least."""
    overhead: int
    """What a part costs by itself, in pieces: padding is cut away where it costs more."""

    def parts(self, lengths: IntArray) -> list[slice]:
        """The cheapest cut of inputs, given their lengths in ascending order, the part with the longest first.

        A part of b inputs costs b times its longest, and ``overhead``.
        """
        n = len(lengths)
        costs, begins = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
        for end in range(1, n + 1):
            longest = int(lengths[end - 1])
            first = max(0, end - max(1, self.max_tokens // longest))
            each = costs[first:end] + (end - np.arange(first, end)) * longest
            best = int(each.argmin())
            costs[end], begins[end] = each[best] + self.overhead, first + best
        parts = []
        while n:
            parts.append(slice(int(begins[n]), n))
            n = int(begins[n])
        return parts


def share(numbers: IntArray, rank: int, processes: int) -> IntArray:
    """One process's share of a step's inputs, which are sorted by length: every n-th, so that shares are similar."""
    return numbers[rank::processes]


def longest(batches: Sequence[Batch]) -> Batch:
    """The batch with the most pieces, padding included."""
    return max(batches, key=lambda batch: batch.ids.numel())
