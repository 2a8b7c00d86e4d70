"""The base tokenization read only where the expanded one leaves doubt, at little more than the cost of one."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from greenadapt.config import Pool
from greenadapt.models.streaming import MOST_EXAMPLES, ViewOutputs
from greenadapt.storage.arrays import Array, IntArray
from greenadapt.tasks.base import Feature, Input, Task
from greenadapt.workers import ahead, grouped

ReadView = Callable[[Iterable[Input], Pool], Iterator[ViewOutputs]]
"""Puts inputs through a model in one view."""


def second_look(
    task: Task[Any], inputs: Iterable[Input], margin: float, read: ReadView, n_pieces: int
) -> Iterator[ViewOutputs]:
    """The outputs of each input, in order, whose mean is the expanded view's where that is sure.

    Of an input with units in doubt (``Task.in_doubt``) the base view is read, too, as far as it holds one of them: the
    chunks of a sentence, the windows of a context. For all other units ``base`` has what ``expanded`` has. The expanded
    view comes first, since it has fewer pieces. Inputs go through together that have ``n_pieces``.
    """
    groups = grouped(inputs, lambda one: sum(map(len, one.expanded)), n_pieces, MOST_EXAMPLES)
    with closing(ahead(groups)) as blocks:
        for block in blocks:
            outputs = [*read(block, "expanded")]
            again = [_again(task, one, output, margin) for one, output in zip(block, outputs, strict=True)]
            second = iter([*read([one for one in again if one is not None], "base")])
            for one, part, output in zip(block, again, outputs, strict=True):
                yield replace(
                    output, base=output.expanded if part is None else _filled(next(second), output, one, part)
                )


def _again(task: Task[Any], one: Input, output: ViewOutputs, margin: float) -> Input | None:
    """The part of an input that is read again, ``None`` where nothing has to be."""
    assert output.expanded is not None
    if _is_same(one):
        return None
    units = task.in_doubt(output.example, output.expanded, margin)
    return replace(one, base=[each for each in one.base if np.isin(each.units, units).any()]) if len(units) else None


def _filled(second: ViewOutputs, first: ViewOutputs, one: Input, part: Input) -> Array:
    """The base view's output where ``part`` speaks for a unit, and the expanded one's where only the rest would."""
    assert second.base is not None
    assert first.expanded is not None
    is_read, is_whole = (np.isin(np.arange(one.n_units), _units(each.base)) for each in (part, one))
    filled: Array = np.where((is_whole & ~is_read)[:, None], first.expanded, second.base)
    return filled


def _units(features: Iterable[Feature]) -> IntArray:
    units: IntArray = np.concatenate([each.units for each in features])
    return units


def _is_same(one: Input) -> bool:
    """Whether both views read the same."""
    pairs = zip(one.base, one.expanded, strict=False)
    return len(one.base) == len(one.expanded) and all(np.array_equal(a.ids, b.ids) for a, b in pairs)
