"""Both tokenizations of an example in one step: how far their predictions differ, and what texts without labels teach.

As in MVR (arXiv 2103.08490) and R-Drop (arXiv 2106.14448), the loss is the mean of both cross-entropies and λ times the
symmetric KL divergence between both predictions.

Texts without labels: at each unit (the first piece of a word; a text) the teacher t is the prediction of both views,
the softmax of the mean of their logits, as ``--pool mean`` has it. The loss is KL(t‖p) + KL(t‖q), where p and q are the
predictions of the views and no gradient goes through t. A step adds μ times its mean over the units to the loss on
labelled examples, once a fifth of the steps are made: before, the teacher knows little.

Views of a sentence teach each other in Cross-View Training (Clark et al., arXiv 1809.08370), and versions of an
unlabelled one have to agree in UDA (Xie et al., arXiv 1904.12848); that the views are tokenizations is from MVR (Wang
et al., arXiv 2103.08490).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Self

import numpy as np
import torch
from torch.nn.functional import mse_loss

from greenadapt.errors import InputError
from greenadapt.storage.arrays import Array, BoolArray, IntArray, offsets_of
from greenadapt.tasks.base import IGNORED, Feature, Input, TaskData, flattened
from greenadapt.training.batches import Batch, TaskDataset, divergence_sum, loss_sum, squared_teaching_sum, teaching_sum

_QUESTIONS = "QuestionAnswering"
_NONE = -1
_NO_PLACES = np.zeros((2, 2, 0), np.int32)
_IMPOSSIBLE = -1e30  # a logit of probability 0; of two that are -inf the divergence would be NaN


@dataclass(frozen=True, eq=False)
class PairedDataset:
    """A ``Dataset`` of the pairs that the inputs of ``views`` make, which go through the model together.

    Pair j is ``pairs[j]`` (2,), the numbers of a base and an expanded input: the same one twice if both views of an
    example have the same pieces, which are read once then, their loss counted twice. The second is -1 if an input (a
    window) has no partner. Example i has the pairs ``firsts[i]:firsts[i + 1]``. Pair j is compared at the units
    ``offsets[j]:offsets[j + 1]``, of which ``places`` (2, 2, m) int32 has by view the first and the last piece.
    """

    views: TaskDataset
    pairs: IntArray
    firsts: IntArray
    places: IntArray
    offsets: IntArray
    weight: float
    """λ."""

    @classmethod
    def of(cls, views: TaskDataset, items: Sequence[Input], weight: float) -> Self:
        """The inputs of ``items``, of which ``views`` was made, in pairs.

        Windows of a question pair up in their order, those with the answer and those without it apart.
        """
        pairs: list[list[int]] = []
        places: list[IntArray] = []
        counts = []
        _, firsts, _ = flattened(items)
        for one, (base, expanded) in zip(items, firsts.tolist(), strict=True):
            is_same, before = _is_same(one), len(pairs)
            for i, j in _partners(one, views.head):
                numbers = [] if i is None else [base + i]
                numbers += [] if j is None else [(base if is_same else expanded) + j]
                pairs.append([*numbers, _NONE][:2])
                differ = i is not None and j is not None and not is_same
                places.append(shared_places(one.base[i or 0], one.expanded[j or 0]) if differ else _NO_PLACES)
            counts.append(len(pairs) - before)
        sizes = np.array([each.shape[-1] for each in places], np.int64)
        return cls(
            views,
            np.array(pairs, np.int64).reshape(-1, 2),
            offsets_of(np.array(counts, np.int64)),
            np.concatenate([_NO_PLACES, *places], axis=2),
            offsets_of(sizes),
            weight,
        )

    @property
    def task(self) -> str | None:
        """That of ``views``."""
        return self.views.task

    @property
    def n_examples(self) -> int:
        """That of ``views``."""
        return self.views.n_examples

    @property
    def head(self) -> str:
        """That of ``views``."""
        return self.views.head

    @property
    def n_items(self) -> int:
        """That of ``views``."""
        return self.views.n_items

    def inputs_of(self, items: IntArray, expanded: BoolArray) -> IntArray:
        """Numbers of the pairs of examples, the shortest first; each of ``items`` is there in both views."""
        among = items[expanded]
        numbers = np.concatenate([np.arange(self.firsts[i], self.firsts[i + 1]) for i in among.tolist()])
        return numbers[np.argsort(self.lengths(numbers), kind="stable")]

    def lengths(self, numbers: IntArray) -> IntArray:
        """Pieces of each pair, both as long as the longer one; those of an input that is read alone count twice."""
        first, second = self.pairs[numbers].T
        return 2 * np.maximum(self.views.lengths(first), self.views.lengths(np.where(second < 0, first, second)))

    def n_pieces(self, numbers: IntArray) -> int:
        """How many pieces go through the model."""
        return self.views.n_pieces(np.unique(self._readings(numbers)))

    def n_terms(self, numbers: IntArray, epoch: int = 0) -> int:
        """How many terms the cross-entropies of both views have."""
        return self.views.n_terms(self._readings(numbers), epoch)

    def batch(self, numbers: IntArray, epoch: int = 0) -> "PairedBatch":
        """The inputs of pairs below each other, each once."""
        inputs, readings = np.unique(self._readings(numbers), return_inverse=True)
        batch = self.views.batch(inputs, epoch)
        sizes = self.offsets[numbers + 1] - self.offsets[numbers]
        compared = numbers[sizes > 0]
        rows = np.searchsorted(inputs, self.pairs[compared].T)  # (2, d)
        is_unit = np.arange(sizes.max(initial=0)) < sizes[sizes > 0, None]  # (d, m)
        units = np.concatenate([np.zeros(0, np.int64), *(np.arange(*self.offsets[[j, j + 1]]) for j in compared)])
        n = 1 if self.head == "SequenceClassification" else batch.ids.shape[1]
        places = np.full((2, 2, *is_unit.shape), _NONE)
        places[:, :, is_unit] = self.places[:, :, units] + np.repeat(rows * n, sizes[sizes > 0], axis=1)[:, None]
        return PairedBatch(
            batch.ids,
            batch.mask,
            batch.types,
            batch.targets,
            batch.extra,
            readings=torch.from_numpy(readings),
            places=torch.from_numpy(places if self.head == _QUESTIONS else places[:, 0, is_unit]),
            weight=self.weight,
        )

    def digest(self, update: Callable[[bytes], object]) -> None:
        """Give all that says what is trained on to ``update``, a hash's."""
        self.views.digest(update)

    def _readings(self, numbers: IntArray) -> IntArray:
        """The inputs of pairs, those that both views share twice."""
        inputs = self.pairs[numbers].ravel()
        return inputs[inputs >= 0]


@dataclass(frozen=True, eq=False, kw_only=True)
class PairedBatch(Batch):
    """Inputs that go through the model together, both views of each, and where their outputs are compared."""

    readings: torch.Tensor
    """(r,) int64: which input each term of the loss is for; one that both views share is there twice."""
    places: torch.Tensor
    """(2, u) int64, by view: which of the batch's outputs, end to end, each of the u units that are compared has; of
    windows (2, 2, d, m): by view the first and the last piece of at most m words of d pairs, -1 for none."""
    weight: float
    """λ."""

    def loss_sum(self, head: str, output: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Sum of both views' cross-entropies and 2 λ D, so that a term has the mean of both and λ D, () float32."""
        names = ("logits", "start_logits", "end_logits")
        read = {name: output[name][self.readings] for name in names if name in output}
        both = loss_sum(head, read, self.targets[self.readings], self.mask[self.readings])
        return both + 2 * self.weight * self.disagreement_sum(head, output)

    def disagreement_sum(self, head: str, output: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """D, ½ (KL(p‖q) + KL(q‖p)) of both views' predictions, summed over what is compared, () float32.

        NER: the labels of each word, at its first piece. Classification: the classes; of a regression, (p - q)². QA:
        the mean of both for where the answer starts, over the first pieces of the words that both windows have whole
        and [CLS], and where it ends, over their last pieces and [CLS], renormalised.
        """
        if head == _QUESTIONS:
            logits = torch.stack([output["start_logits"], output["end_logits"]]).float().flatten(1)
            first, second = (
                logits.gather(1, at.clamp(min=0).flatten(1)).view_as(at).masked_fill(at < 0, _IMPOSSIBLE)
                for at in self.places
            )
            return divergence_sum(first, second) / 2
        first, second = output["logits"].float().flatten(0, -2)[self.places]
        if self.targets.is_floating_point():
            return mse_loss(first, second, reduction="sum")
        return divergence_sum(first, second)


def shared_places(first: Feature, second: Feature) -> IntArray:
    """By view the first and the last piece of each unit that both features have, by its number: (2, 2, n) int32."""
    found = []
    for units in (first.units, second.units):
        named, begins = np.unique(units, return_index=True)
        ends = len(units) - 1 - np.unique(units[::-1], return_index=True)[1]
        found.append((named, np.stack([begins, ends])))
    (one, places), (other, others) = found
    shared, i, j = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    is_unit = shared >= 0
    return np.stack([places[:, i[is_unit]], others[:, j[is_unit]]]).astype(np.int32)


def _is_same(one: Input) -> bool:
    """Whether an example has the same pieces in both views."""
    return len(one.base) == len(one.expanded) and all(
        np.array_equal(a.ids, b.ids) for a, b in zip(one.base, one.expanded, strict=True)
    )


def _partners(one: Input, head: str) -> Iterator[tuple[int | None, int | None]]:
    """Which base and which expanded input of an example are a pair."""

    def holding(features: Sequence[Feature], answer: bool) -> list[int]:
        holds = [head == _QUESTIONS and bool(np.any(feature.target)) for feature in features]
        return [i for i, each in enumerate(holds) if each == answer]

    for answer in (True, False):
        yield from zip_longest(holding(one.base, answer), holding(one.expanded, answer))


def unlabelled_inputs(one: TaskData, examples: Sequence[Any], labelled: Sequence[Input], most: int) -> list[Input]:
    """The first ``most`` chunks or texts of ``examples`` that differ in their views, each an input of its own.

    Each gets a target that says nothing, of the kind that the ``labelled`` inputs have. Raises ``InputError`` if no
    text differs.
    """
    target = np.asarray(labelled[0].base[0].target)
    made: list[Input] = []
    for read in one.task.inference(examples, one.encoder):
        for base, expanded in zip(read.base, read.expanded, strict=True):
            if not np.array_equal(base.ids, expanded.ids):
                made.append(Input([_aimless(base, target)], [_aimless(expanded, target)], read.n_units))
        if len(made) >= most:
            break
    if not made:
        raise InputError(
            f"both tokenizations are the same in all {len(examples):,} texts of --unlabelled",
            "give text of the domain that the model was adapted to",
        )
    return made[:most]


@dataclass(frozen=True, eq=False)
class UnlabelledDataset(PairedDataset):
    """A ``PairedDataset`` of ``unlabelled_inputs``; ``weight`` is μ."""

    def n_terms(self, numbers: IntArray, epoch: int = 0) -> int:
        """How many units are compared."""
        return int((self.offsets[numbers + 1] - self.offsets[numbers]).sum())

    def batch(self, numbers: IntArray, epoch: int = 0) -> "TaughtBatch":
        """The inputs of pairs below each other."""
        return TaughtBatch(**vars(super().batch(numbers, epoch)))

    def digest(self, update: Callable[[bytes], object]) -> None:
        """Give all that says what is trained on to ``update``, a hash's."""
        update(repr(self.weight).encode())
        super().digest(update)


@dataclass(frozen=True, eq=False, kw_only=True)
class TaughtBatch(PairedBatch):
    """Both views of inputs without labels."""

    def loss_sum(self, head: str, output: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """μ (KL(t‖p) + KL(t‖q)), summed over the units, () float32; of a regression μ ((p - t)² + (q - t)²)."""
        first, second = output["logits"].float().flatten(0, -2)[self.places]
        taught = squared_teaching_sum if self.targets.is_floating_point() else teaching_sum
        return self.weight * taught(first, second)


def _aimless(feature: Feature, target: Array) -> Feature:
    shape = (len(feature),) if target.ndim else ()
    return replace(feature, target=np.full(shape, IGNORED, target.dtype))
