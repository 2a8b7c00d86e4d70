"""The scores of a model on labelled examples: by each tokenization alone, and by the mean of both."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from greenadapt.config import Pool
from greenadapt.models.streaming import ViewOutputs, pool_views
from greenadapt.progress import Bar
from greenadapt.store.arrays import Array, offsets_of
from greenadapt.store.files import Json
from greenadapt.tasks.base import Task

POOLS: tuple[Pool, ...] = ("mean", "base", "expanded")


@dataclass
class Evaluation:
    """Predictions and scores of a model on a set of examples."""

    predictions: list[Json]
    """The predictions of the chosen pool, one per example."""
    view_predictions: dict[str, list[Json]]
    """The predictions of every pool."""
    scores: Json
    """The scores of the chosen pool."""
    views: dict[str, Json]
    """The scores of every pool."""
    logits: dict[str, list[Array]] = field(default_factory=dict)
    """View → logits (n_units, k) float32 of each example, with ``keep_logits``."""
    read_twice: int = 0
    """The number of examples that the model read in two different views."""

    @classmethod
    def of(  # noqa: PLR0913
        cls,
        task: Task[Any],
        examples: Sequence[Any],
        outputs: Iterable[ViewOutputs],
        pool: Pool | None,
        bar: Bar,
        *,
        views: tuple[Pool, ...] = POOLS,
        keep_logits: bool = False,
    ) -> "Evaluation":
        """Score the outputs of a model on labelled examples.

        ``pool`` is ``None`` if the model has no added words; ``views`` are the pools that all outputs have.
        """
        pools: tuple[Pool, ...] = ("base",) if pool is None else views
        predictions: dict[str, list[Json]] = {name: [] for name in pools}
        logits: dict[str, list[Array]] = {}
        read_twice = 0
        for output in outputs:
            read_twice += output.base is not output.expanded
            for name in pools:
                predictions[name].append(task.decode(output.example, pool_views(output, name)))
                if keep_logits and name != "mean":
                    logits.setdefault(name, []).append(pool_views(output, name))
            bar.advance(1)
        scores: dict[str, Json] = {name: task.score(examples, predictions[name]) for name in pools}

        chosen = pool or "base"
        return cls(predictions[chosen], predictions, scores[chosen], scores, logits, read_twice)

    def as_dict(self) -> Json:
        """The scores, and under ``views`` those of each pool."""
        return {**self.scores, "views": self.views}


def stack(logits: dict[str, list[Array]]) -> dict[str, Array]:
    """The concatenated logits of all examples by view, (total n_units, k), and ``offsets`` (n_examples + 1,)."""
    arrays: dict[str, Array] = {}
    for view, examples in logits.items():
        width = max((example.shape[-1] for example in examples), default=0)
        arrays[view] = np.concatenate([example.reshape(-1, width) for example in examples]).astype(np.float32)
        arrays["offsets"] = offsets_of(np.array([len(example) for example in examples], np.int64))
    return arrays
