"""Texts without labels in the steps of a task: what both tokenizations predict together teaches each of them.

At each unit (the first piece of a word; a text) the teacher t is the prediction of both views, the softmax of the mean
of their logits, as ``--pool mean`` has it. The loss is KL(t‖p) + KL(t‖q), where p and q are the predictions of the
views and no gradient goes through t. A step adds μ times its mean over the units to the loss on labelled examples, once
a fifth of the steps are made: before, the teacher knows little.

Views of a sentence teach each other in Cross-View Training (Clark et al., arXiv 1809.08370), and versions of an
unlabelled one have to agree in UDA (Xie et al., arXiv 1904.12848); that the views are tokenizations is from MVR (Wang
et al., arXiv 2103.08490).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from greenadapt.errors import InputError
from greenadapt.storage.arrays import Array, IntArray
from greenadapt.tasks.base import IGNORED, Feature, Input, TaskData
from greenadapt.training.agreement import PairedBatch, PairedDataset
from greenadapt.training.losses import squared_teaching_sum, teaching_sum


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
