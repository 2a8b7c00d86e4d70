"""How good a model is on labelled examples: by each tokenization alone, and by the mean of both."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from greenadapt.config import Pool
from greenadapt.models.example_blocks import ViewOutputs
from greenadapt.models.forward import pooled
from greenadapt.progress import Bar
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Task
from greenadapt.tasks.features import Encoder

POOLS: tuple[Pool, ...] = ("mean", "base", "expanded")


@dataclass
class Evaluation:
    """Predictions and scores of one model on one set; ``views`` has the scores of every pool that the model has."""

    predictions: list[Json]
    """Of the chosen pool, one an example."""
    view_predictions: dict[str, list[Json]]
    """Those of every pool that the model has."""
    scores: Json
    """Of the chosen pool."""
    views: dict[str, Json]
    logits: dict[str, list[Array]] = field(default_factory=dict)
    """View → its (n_units, k) float32 of each example, if wanted."""

    def as_dict(self) -> Json:
        """The scores, and under ``views`` those of each pool."""
        return {**self.scores, "views": self.views}


@dataclass(frozen=True)
class Evaluator:
    """Labelled examples, and how a model reads them."""

    task: Task[Any]
    encoder: Encoder
    examples: Sequence[Any]
    pool: Pool

    def evaluate(
        self,
        run: Callable[[Iterator[Any]], Iterator[ViewOutputs]],
        bar: Bar,
        counts: Counter[str] | None = None,
        *,
        keep_logits: bool = False,
    ) -> Evaluation:
        """Score the model that ``run`` puts inputs through: an iterator of ``Views`` in, of their outputs out.

        ``counts`` is that of ``Task.inference``.
        """
        pools: tuple[Pool, ...] = POOLS if self.encoder.has_words else ("base",)
        chosen: Pool = self.pool if self.encoder.has_words else "base"
        predictions: dict[str, list[Json]] = {pool: [] for pool in pools}
        logits: dict[str, list[Array]] = {}
        outputs = run(self.task.inference(self.examples, self.encoder, counts))
        for example, output in zip(self.examples, outputs, strict=True):
            for pool in pools:
                predictions[pool].append(self.task.decode(example, pooled(output, pool)))
            if keep_logits:
                for view in pools:
                    if view != "mean":
                        logits.setdefault(view, []).append(pooled(output, view))
            bar.advance(1)
        views: dict[str, Json] = {pool: self.task.score(self.examples, predictions[pool]) for pool in pools}
        return Evaluation(predictions[chosen], predictions, views[chosen], views, logits)


def stacked(logits: dict[str, list[Array]]) -> dict[str, Array]:
    """Each view's logits of all examples below each other, (n_units of all, k), and ``offsets`` (n_examples + 1,)."""
    arrays: dict[str, Array] = {}
    for view, each in logits.items():
        width = max((one.shape[-1] for one in each), default=0)
        arrays[view] = np.concatenate([one.reshape(-1, width) for one in each]).astype(np.float32)
        arrays["offsets"] = np.concatenate([[0], np.cumsum([len(one) for one in each])]).astype(np.int64)
    return arrays
