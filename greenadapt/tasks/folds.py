"""Labelled examples divided at random, for cross-validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from greenadapt.errors import UsageError

Example = TypeVar("Example")


@dataclass(frozen=True)
class Fold:
    """One of ``of`` parts of the examples, ``number`` from 0: it is left out, and the other parts are trained on."""

    number: int
    of: int
    seed: int = 0
    """Of the division."""

    def split(self, examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
        """The examples to train on, and those that are left out, both in their order.

        Examples on one ``context`` (questions) are in the same part. Raises ``UsageError`` if there are fewer examples,
        or contexts, than parts.
        """
        names = [getattr(example, "context", number) for number, example in enumerate(examples)]
        groups = {name: number for number, name in enumerate(dict.fromkeys(names))}
        if len(groups) < self.of:
            what = "contexts" if len(groups) < len(examples) else "examples"
            raise UsageError(
                f"--folds is {self.of}, but there are only {len(groups)} {what}", "use fewer, or label more"
            )
        part = np.random.default_rng(self.seed).permutation(len(groups)) % self.of
        is_out = [part[groups[name]] == self.number for name in names]
        trained = [example for example, out in zip(examples, is_out, strict=True) if not out]
        return trained, [example for example, out in zip(examples, is_out, strict=True) if out]
