"""Random inputs for every head, the same inputs padded for transformers, and comparisons of weights."""

from functools import partial
from typing import Any

import numpy as np
import torch

from greenadapt.tasks.base import Feature, Item

NER, TEXTS, QA = "TokenClassification", "SequenceClassification", "QuestionAnswering"
ROUNDING = 1e-5
"""What float32 rounds off states, logits and gradients of small models: 40 times 2⁻²⁴ of numbers up to 4."""
SteadyAdamW = partial(torch.optim.AdamW, eps=1e-3)
"""AdamW divides a gradient by its own size: one that is hardly more than rounding moves a weight like any other.

With this ε the rounding of a gradient, 1e-7, moves a weight by 1e-4 of the learning rate at most.
"""


def _feature(draw: np.random.Generator, n: int, head: str) -> Feature:
    ids = draw.integers(5, 150, n).astype(np.int32)
    targets = {NER: draw.integers(0, 3, n), TEXTS: np.array(draw.integers(0, 3)), QA: np.array([1, n - 1])}
    target = targets[head]
    if head == NER:
        target[[0, -1]] = -100
    units = np.zeros(1 if head == TEXTS else n, np.int32)
    return Feature(ids, np.zeros(n, np.int32), units, target.astype(np.int64))


def items_of(head: str = NER, n_items: int = 11, longest: int = 20, seed: int = 0) -> list[Item]:
    """Examples with one input, two for QA, of 4 to ``longest`` pieces."""
    draw = np.random.default_rng(seed)

    def view() -> list[Feature]:
        return [_feature(draw, int(draw.integers(4, longest + 1)), head) for _ in range(2 if head == QA else 1)]

    return [Item(view(), view(), 1) for _ in range(n_items)]


def by_hand(features: list[Feature]) -> dict[str, torch.Tensor]:
    """The arguments of transformers' model with a head, including targets."""

    def padded(rows: list[Any], fill: int) -> torch.Tensor:
        tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)

    inputs = {"input_ids": padded([f.ids for f in features], 0)}
    inputs["attention_mask"] = padded([np.ones(len(f)) for f in features], 0)
    targets = [f.target for f in features]
    if targets[0] is not None and targets[0].shape == (2,):
        spans = torch.tensor(np.stack([t for t in targets if t is not None]))
        return inputs | {"start_positions": spans[:, 0], "end_positions": spans[:, 1]}
    is_text = targets[0] is not None and targets[0].ndim == 0
    return inputs | {"labels": torch.tensor(np.array(targets)) if is_text else padded(targets, -100)}


def weights_of(model: Any) -> dict[str, torch.Tensor]:
    """A copy of all weights by name."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], atol: float = 0.0) -> None:
    """Raise ``AssertionError`` unless all weights of ``first`` equal those of ``second``."""
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, atol=atol, rtol=0, msg=name)
