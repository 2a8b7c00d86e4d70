"""The base tokenization read only where the expanded one leaves doubt, at little more than the cost of one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from greenadapt.config import Pool
from greenadapt.models.example_blocks import ViewOutputs
from greenadapt.models.streaming import BLOCK_PIECES_CPU
from greenadapt.tasks.base import Task
from greenadapt.tasks.features import Input

ReadView = Callable[[Iterable[Input], Pool], Iterator[ViewOutputs]]
"""Puts inputs through a model in one view."""


def second_look(task: Task[Any], inputs: Iterable[Input], margin: float, read: ReadView) -> Iterator[ViewOutputs]:
    """The outputs of each input, in order, so that the mean of both views is the expanded one's where that is sure.

    Of an input with units in doubt (``Task.in_doubt``) the base view is read, too: all that holds one of them. Units
    that it then does not speak for are -inf in ``base``, and so in the mean: they are no answers. Elsewhere ``base`` is
    ``expanded``. The expanded view comes first, since it has fewer pieces.
    """
    for block in _blocks(inputs):
        outputs = [*read(block, "expanded")]
        again = [_again(task, one, output, margin) for one, output in zip(block, outputs, strict=True)]
        second = iter([*read([one for one in again if one is not None], "base")])
        for output, one in zip(outputs, again, strict=True):
            yield replace(output, base=output.expanded if one is None else next(second).base)


def _again(task: Task[Any], one: Input, output: ViewOutputs, margin: float) -> Input | None:
    """What is read again of an input, ``None`` where nothing has to be."""
    assert output.expanded is not None
    if _is_same(one):
        return None
    units = task.in_doubt(output.example, output.expanded, margin)
    return replace(one, base=[each for each in one.base if np.isin(each.units, units).any()]) if len(units) else None


def _is_same(one: Input) -> bool:
    """Whether both views read the same."""
    pairs = zip(one.base, one.expanded, strict=False)
    return len(one.base) == len(one.expanded) and all(np.array_equal(a.ids, b.ids) for a, b in pairs)


def _blocks(inputs: Iterable[Input]) -> Iterator[list[Input]]:
    """Inputs that go through together, so that there are enough of them to make batches of equal length."""
    block: list[Input] = []
    n = 0
    for one in inputs:
        block.append(one)
        n += sum(map(len, one.expanded))
        if n >= BLOCK_PIECES_CPU:
            yield block
            block, n = [], 0
    if block:
        yield block
