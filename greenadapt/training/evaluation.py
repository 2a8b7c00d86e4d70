"""How good a model is on labelled examples: by each tokenization alone, and by the mean of both."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from greenadapt.config import Pool, PoolChoice
from greenadapt.models.streaming import ViewOutputs, pooled
from greenadapt.progress import Bar
from greenadapt.storage.arrays import Array, IntArray, offsets_of
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Feature, Input, Task, flattened

POOLS: tuple[Pool, ...] = ("mean", "base", "expanded")
_BY_COST: tuple[Pool, ...] = ("base", "expanded", "mean")


@dataclass(frozen=True, eq=False)
class KeptInputs:
    """Inputs kept in a few arrays, so that what a model is measured on is tokenized once and not in every epoch.

    Feature f has ``ids[offsets[f]:offsets[f + 1]]``, as many ``types``, and
    ``units[unit_offsets[f]:unit_offsets[f + 1]]``; ``firsts`` and ``counts`` are those of ``flattened``.
    """

    ids: IntArray
    types: IntArray
    offsets: IntArray
    units: IntArray
    unit_offsets: IntArray
    firsts: IntArray
    counts: IntArray
    n_units: list[int]
    examples: list[Any]

    @classmethod
    def of(cls, inputs: Iterable[Input]) -> "KeptInputs":
        """Those of ``inputs``, without their targets."""
        each = list(inputs)
        features, firsts, counts = flattened(each)
        none = np.zeros(0, np.int32)
        return cls(
            np.concatenate([none, *(feature.ids for feature in features)]),
            np.concatenate([none, *(feature.types for feature in features)]).astype(np.int8),
            offsets_of(np.array([len(feature) for feature in features], np.int64)),
            np.concatenate([none, *(feature.units for feature in features)]),
            offsets_of(np.array([len(feature.units) for feature in features], np.int64)),
            firsts,
            counts,
            [one.n_units for one in each],
            [one.example for one in each],
        )

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Input]:
        for i, example in enumerate(self.examples):
            base = self._features(i, 0)
            expanded = base if self.firsts[i, 0] == self.firsts[i, 1] else self._features(i, 1)
            yield Input(base, expanded, self.n_units[i], example)

    def _features(self, i: int, view: int) -> list[Feature]:
        first = int(self.firsts[i, view])
        found = []
        for f in range(first, first + int(self.counts[i, view])):
            pieces = slice(self.offsets[f], self.offsets[f + 1])
            units = self.units[self.unit_offsets[f] : self.unit_offsets[f + 1]]
            found.append(Feature(self.ids[pieces], self.types[pieces].astype(np.int32), units))
        return found


@dataclass
class Evaluation:
    """Predictions and scores of one model on one set; ``views`` has the scores of every pool that the model has."""

    pool: Pool
    """The chosen one."""
    predictions: list[Json]
    """Of the chosen pool, one per example."""
    view_predictions: dict[str, list[Json]]
    """Those of every pool that the model has."""
    scores: Json
    """Of the chosen pool."""
    views: dict[str, Json]
    logits: dict[str, list[Array]] = field(default_factory=dict)
    """View → its (n_units, k) float32 of each example, if wanted."""
    read_twice: int = 0
    """How many examples went through the model in both views, which differ."""

    @classmethod
    def of(  # noqa: PLR0913
        cls,
        task: Task[Any],
        examples: Sequence[Any],
        outputs: Iterable[ViewOutputs],
        pool: PoolChoice | None,
        bar: Bar,
        *,
        views: tuple[Pool, ...] = POOLS,
        keep_logits: bool = False,
    ) -> "Evaluation":
        """Score a model by its outputs on labelled examples; ``pool`` is ``None`` if it has no added words, and
        ``views`` are those that all examples have.

        ``best`` is the pool of the highest main score; of equal ones base, then expanded, which take one pass.
        """
        pools: tuple[Pool, ...] = ("base",) if pool is None else views
        predictions: dict[str, list[Json]] = {name: [] for name in pools}
        logits: dict[str, list[Array]] = {}
        read_twice = 0
        for output in outputs:
            read_twice += output.base is not output.expanded
            for name in pools:
                predictions[name].append(task.decode(output.example, pooled(output, name)))
                if keep_logits and name != "mean":
                    logits.setdefault(name, []).append(pooled(output, name))
            bar.advance(1)
        scores: dict[str, Json] = {name: task.score(examples, predictions[name]) for name in pools}
        chosen = _best(scores, task.main) if pool == "best" else pool or "base"
        return cls(chosen, predictions[chosen], predictions, scores[chosen], scores, logits, read_twice)

    def as_dict(self) -> Json:
        """The scores, and under ``views`` those of each pool."""
        return {**self.scores, "views": self.views}


def _best(views: Mapping[str, Json], main: str) -> Pool:
    def score(pool: Pool) -> float:
        value = views[pool][main]
        return -math.inf if value is None else float(value)

    return max(_BY_COST, key=score)


def stacked(logits: dict[str, list[Array]]) -> dict[str, Array]:
    """Each view's logits of all examples below each other, (n_units of all, k), and ``offsets`` (n_examples + 1,)."""
    arrays: dict[str, Array] = {}
    for view, each in logits.items():
        width = max((one.shape[-1] for one in each), default=0)
        arrays[view] = np.concatenate([one.reshape(-1, width) for one in each]).astype(np.float32)
        arrays["offsets"] = np.concatenate([[0], np.cumsum([len(one) for one in each])]).astype(np.int64)
    return arrays
