"""Both tokenizations of an example in a step, and the agreement of their predictions.

As in MVR (Wang et al., arXiv 2103.08490) and R-Drop (arXiv 2106.14448), the loss is the mean of both cross-entropies
plus λ times the symmetric KL divergence between both predictions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self

import numpy as np
import torch
from torch.nn.functional import mse_loss

from greenadapt.storage.arrays import BoolArray, IntArray, offsets_of
from greenadapt.tasks.base import Feature, Input, flattened
from greenadapt.training.batches import Batch, TaskDataset, divergence_sum, loss_sum

_QUESTIONS = "QuestionAnswering"
_NO_PARTNER = -1
_NO_PIECES = np.zeros((2, 2, 0), np.int32)
_IMPOSSIBLE = -1e30  # logit of probability 0; two of -inf would have a divergence of NaN


@dataclass(frozen=True, eq=False)
class PairedDataset:
    """A ``Dataset`` of pairs of the inputs of ``views``, in both tokenizations, which are in the same batch.

    Pair j is ``pairs[j]`` (2,), the numbers of a base and an expanded input. They are equal if both views have the same
    pieces, which the model then reads once, with twice the loss; the second is -1 if an input (a window) has no
    partner. Item i has the pairs ``firsts[i]:firsts[i + 1]``. The predictions of pair j are compared at the units
    ``offsets[j]:offsets[j + 1]``, whose first and last pieces are in ``unit_pieces`` (view, first or last, m) int32.
    """

    views: TaskDataset
    pairs: IntArray
    firsts: IntArray
    unit_pieces: IntArray
    offsets: IntArray
    weight: float
    """λ."""

    @classmethod
    def of(cls, views: TaskDataset, items: Sequence[Input], weight: float) -> Self:
        """Pair the inputs of ``items``, from which ``views`` was made.

        Windows of a question with the answer are paired in order, and so are those without it.
        """
        pairs: list[list[int]] = []
        unit_pieces: list[IntArray] = []
        counts = []
        _, firsts, _ = flattened(items)
        for item, (base, expanded) in zip(items, firsts.tolist(), strict=True):
            is_same = len(item.base) == len(item.expanded) and all(
                np.array_equal(a.ids, b.ids) for a, b in zip(item.base, item.expanded, strict=True)
            )
            n_before = len(pairs)
            for i, j in _partners(item, views.head):
                numbers = [] if i is None else [base + i]
                numbers += [] if j is None else [(base if is_same else expanded) + j]
                pairs.append([*numbers, _NO_PARTNER][:2])
                differ = i is not None and j is not None and not is_same
                unit_pieces.append(
                    shared_unit_pieces(item.base[i or 0], item.expanded[j or 0]) if differ else _NO_PIECES
                )
            counts.append(len(pairs) - n_before)
        sizes = np.array([part.shape[-1] for part in unit_pieces], np.int64)
        return cls(
            views,
            np.array(pairs, np.int64).reshape(-1, 2),
            offsets_of(np.array(counts, np.int64)),
            np.concatenate([_NO_PIECES, *unit_pieces], axis=2),
            offsets_of(sizes),
            weight,
        )

    @property
    def task(self) -> str | None:
        return self.views.task

    @property
    def n_examples(self) -> int:
        return self.views.n_examples

    @property
    def head(self) -> str:
        return self.views.head

    @property
    def n_items(self) -> int:
        return self.views.n_items

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        """The numbers of the pairs of ``items``, which have both views, the shortest first."""
        examples = items[expanded]
        numbers = np.concatenate([np.arange(self.firsts[i], self.firsts[i + 1]) for i in examples.tolist()])
        return numbers[np.argsort(self.lengths(numbers), kind="stable")]

    def lengths(self, numbers: IntArray) -> IntArray:
        """The number of pieces of each pair, padded to the longer input; a single input counts twice."""
        first, second = self.pairs[numbers].T
        return 2 * np.maximum(self.views.lengths(first), self.views.lengths(np.where(second < 0, first, second)))

    def n_pieces(self, numbers: IntArray) -> int:
        return self.views.n_pieces(np.unique(self._readings(numbers)))

    def n_terms(self, numbers: IntArray, epoch: int = 0) -> int:
        """The number of terms of the cross-entropies of both views."""
        return self.views.n_terms(self._readings(numbers), epoch)

    def batch(self, numbers: IntArray, epoch: int = 0) -> "PairedBatch":
        """The inputs of pairs, each once."""
        inputs, readings = np.unique(self._readings(numbers), return_inverse=True)
        batch = self.views.batch(inputs, epoch)
        sizes = self.offsets[numbers + 1] - self.offsets[numbers]
        compared = numbers[sizes > 0]
        rows = np.searchsorted(inputs, self.pairs[compared].T)  # (2, d)
        is_unit = np.arange(sizes.max(initial=0)) < sizes[sizes > 0, None]  # (d, m)
        units = np.concatenate([np.zeros(0, np.int64), *(np.arange(*self.offsets[[j, j + 1]]) for j in compared)])
        n = 1 if self.head == "SequenceClassification" else batch.ids.shape[1]
        output_indices = np.full((2, 2, *is_unit.shape), _NO_PARTNER)
        first_outputs = np.repeat(rows * n, sizes[sizes > 0], axis=1)[:, None]
        output_indices[:, :, is_unit] = self.unit_pieces[:, :, units] + first_outputs
        return PairedBatch(
            **vars(batch),
            readings=torch.from_numpy(readings),
            output_indices=torch.from_numpy(
                output_indices if self.head == _QUESTIONS else output_indices[:, 0, is_unit]
            ),
            weight=self.weight,
        )

    def digest(self, update: Callable[[bytes], object]) -> None:
        self.views.digest(update)

    def _readings(self, numbers: IntArray) -> IntArray:
        """The inputs of pairs; those that both views share are repeated."""
        inputs = self.pairs[numbers].ravel()
        return inputs[inputs >= 0]


@dataclass(frozen=True, eq=False, kw_only=True)
class PairedBatch(Batch):
    """A batch of pairs of inputs, and the indices of the outputs that are compared."""

    readings: torch.Tensor
    """(r,) int64: the input of each term of the loss; those that both views share are repeated."""
    output_indices: torch.Tensor
    """(2, u) int64: for each view and each of the u compared units, the index of its output in the flattened batch; for
    windows (2, 2, d, m): by view the first and last pieces of at most m words in d pairs, -1 for none."""
    weight: float
    """λ."""

    def loss_sum(self, head: str, output: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Sum of both views' cross-entropies and 2 λ D, so that the mean over the terms has their mean and λ D, ()
        float32.
        """
        names = ("logits", "start_logits", "end_logits")
        outputs = {name: output[name][self.readings] for name in names if name in output}
        labelled = loss_sum(head, outputs, self.targets[self.readings], self.mask[self.readings])
        return labelled + 2 * self.weight * self.disagreement_sum(head, output)

    def disagreement_sum(self, head: str, output: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """D, ½ (KL(p‖q) + KL(q‖p)) of both views' predictions, summed over the compared units, () float32.

        NER: the labels of each word, at its first piece. Classification: the classes; for regression, (p - q)². QA: the
        mean of D for the start of the answer, over [CLS] and the first pieces of the words that are complete in both
        windows, and D for its end, over [CLS] and their last pieces, renormalized.
        """
        if head == _QUESTIONS:
            logits = torch.stack([output["start_logits"], output["end_logits"]]).float().flatten(1)
            first, second = (
                logits.gather(1, at.clamp(min=0).flatten(1)).view_as(at).masked_fill(at < 0, _IMPOSSIBLE)
                for at in self.output_indices
            )
            return divergence_sum(first, second) / 2
        first, second = output["logits"].float().flatten(0, -2)[self.output_indices]
        if self.targets.is_floating_point():
            return mse_loss(first, second, reduction="sum")
        return divergence_sum(first, second)


def shared_unit_pieces(first: Feature, second: Feature) -> IntArray:
    """The first and the last piece of each unit in both features, ascending: (view, first or last, n) int32."""
    (first_units, first_pieces), (second_units, second_pieces) = _unit_pieces(first), _unit_pieces(second)
    shared, i, j = np.intersect1d(first_units, second_units, assume_unique=True, return_indices=True)
    is_unit = shared >= 0
    return np.stack([first_pieces[:, i[is_unit]], second_pieces[:, j[is_unit]]]).astype(np.int32)


def _unit_pieces(feature: Feature) -> tuple[IntArray, IntArray]:
    """The units of a feature, ascending, (m,), and the first and the last piece of each, (2, m)."""
    units, begins = np.unique(feature.units, return_index=True)
    ends = len(feature) - 1 - np.unique(feature.units[::-1], return_index=True)[1]
    return units, np.stack([begins, ends])


def _partners(item: Input, head: str) -> Iterator[tuple[int | None, int | None]]:
    """The indices of the base and the expanded input of each pair of an item."""

    def with_answer(features: Sequence[Feature], answer: bool) -> list[int]:
        has_answer = [head == _QUESTIONS and bool(np.any(feature.target)) for feature in features]
        return [i for i, value in enumerate(has_answer) if value == answer]

    for answer in (True, False):
        yield from zip_longest(with_answer(item.base, answer), with_answer(item.expanded, answer))
