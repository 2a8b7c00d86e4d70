"""Examples that go through a model together: which inputs they have, and what the outputs of these say of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenadapt.storage.arrays import Array, IntArray, offsets_of
from greenadapt.tasks.base import Feature, Input
from greenadapt.workers import grouped

MOST_EXAMPLES = 4096
"""In a block."""


@dataclass(frozen=True, eq=False)
class ViewOutputs:
    """The outputs for one example, (n_units, k) float32, by each view that was wanted; k = 2, start and end, for QA.

    A unit's output is the largest over the pieces that speak for it, -inf if none does. Both are the same array
    where all inputs are the same.
    """

    base: Array | None
    expanded: Array | None
    example: Any = None


@dataclass(frozen=True, eq=False)
class Read:
    """What one task reads of a block."""

    examples: list[Input]
    used: dict[str, list[list[int]]]
    """View → which of the block's inputs each example has, in order."""

    def outputs(self, logits: Sequence[Array]) -> list[ViewOutputs]:
        """Those of each example, from those of each of the block's inputs."""
        reduced = {
            view: _reduce(
                self.examples,
                [getattr(one, view) for one in self.examples],
                [[logits[i] for i in numbers] for numbers in each],
            )
            for view, each in self.used.items()
        }
        if len(reduced) == 2:
            same = [a == b for a, b in zip(self.used["base"], self.used["expanded"], strict=True)]
            pairs = zip(reduced["base"], reduced["expanded"], same, strict=True)
            reduced["expanded"] = [a if is_same else b for a, b, is_same in pairs]
        none = [None] * len(self.examples)
        each = zip(reduced.get("base", none), reduced.get("expanded", none), self.examples, strict=True)
        return [ViewOutputs(base, expanded, one.example) for base, expanded, one in each]


@dataclass(frozen=True, eq=False)
class Block:
    """Examples that go through a model together, of one task or of several that read the same entries."""

    inputs: list[Feature]
    """The different inputs that they have."""
    read: dict[str, Read]
    """By task."""
    ids: IntArray
    """All that occur in an input, ascending, and that of the padding."""

    @classmethod
    def of(cls, examples: Sequence[Mapping[str, Input]], names: Sequence[str], pad_id: int) -> "Block":
        """Find out which inputs are equal, also those of several tasks, so that one of them goes through."""
        number: dict[tuple[bytes, bytes], int] = {}
        inputs: list[Feature] = []

        def numbers(features: Sequence[Feature]) -> list[int]:
            """Which of the different inputs each feature is."""
            found = []
            for feature in features:
                key = (feature.ids.tobytes(), feature.types.tobytes())
                if key not in number:
                    number[key] = len(inputs)
                    inputs.append(feature)
                found.append(number[key])
            return found

        read = {}
        for task in examples[0]:
            views = [one[task] for one in examples]
            read[task] = Read(views, {view: [numbers(getattr(one, view)) for one in views] for view in names})
        occurs = np.zeros(max([pad_id, *(int(feature.ids.max()) for feature in inputs)]) + 1, bool)
        occurs[pad_id] = True
        for feature in inputs:
            occurs[feature.ids] = True
        return cls(inputs, read, np.flatnonzero(occurs))

    def groups(self) -> dict[tuple[str, ...], list[int]]:
        """Tasks → the inputs that these and no others read, in order; every input is in one group."""
        tasks: list[list[str]] = [[] for _ in self.inputs]
        for task, read in self.read.items():
            for i in {i for each in read.used.values() for numbers in each for i in numbers}:
                tasks[i].append(task)
        found: dict[tuple[str, ...], list[int]] = {}
        for i, names in enumerate(tasks):
            found.setdefault(tuple(names), []).append(i)
        return found


def blocks(
    examples: Iterable[Mapping[str, Input]], names: Sequence[str], pad_id: int, n_pieces: int
) -> Iterator[Block]:
    """Examples in order, each in the views of every task that reads it, so many that the views of these ``names`` have
    about ``n_pieces`` for the task that has the most, one at least.
    """

    def size(one: Mapping[str, Input]) -> int:
        return max(sum(len(feature) for name in names for feature in getattr(views, name)) for views in one.values())

    return (Block.of(each, names, pad_id) for each in grouped(examples, size, n_pieces, MOST_EXAMPLES))


def _reduce(block: Sequence[Input], features: Sequence[Sequence[Feature]], logits: list[list[Array]]) -> list[Array]:
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
