"""The interface of word2vec engines, which train two weight tables on a stream of word ids, epoch by epoch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from greenadapt.config import W2VConfig
from greenadapt.storage.arrays import Array


@dataclass(frozen=True)
class Weights:
    """The two tables of word2vec, float32, ``(n_words, dim)`` each; engines change them in place."""

    input: Array
    output: Array


@dataclass(frozen=True)
class Stream:
    """The training text: words as numbers, the most frequent is 0."""

    ids: Array
    """int32, ``(n_tokens,)``; numbers from ``len(counts)`` on are words too rare to be trained."""
    lines: Array
    """int64, ``(n_lines + 1,)``: where each line begins in ``ids``, and the end."""
    counts: Array
    """int64, ``(n_words,)``: how often each trained word occurs in ``ids``, or in a text of which they are a part."""
    occurrences: int | None = None
    """Trained words in ``ids``, where ``counts`` are of more."""

    @property
    def n_words(self) -> int:
        """Number of trained words."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Occurrences of trained words in one epoch."""
        return int(self.counts.sum()) if self.occurrences is None else self.occurrences


def never() -> bool:
    """Do not stop."""
    return False


class Engine(Protocol):
    """Trains ``Weights`` in place.

    With one worker, a part of an epoch depends only on the weights at its start, the configuration and the numbers of
    epoch and part, so a run resumed from a checkpoint gives the same result as an uninterrupted one.
    """

    @property
    def note(self) -> str:
        """A note for the user before training, or empty."""

    def train_epoch(
        self,
        weights: Weights,
        epoch: int,
        advance: Callable[[int, float], None],
        *,
        first: int = 0,
        stop: Callable[[], bool] = never,
    ) -> int:
        """Train epoch number ``epoch`` (from 0) from part ``first`` on.

        Calls ``advance(words, learning_rate)`` after each part. Once ``stop()`` is true, returns the number of the part
        to go on with; 0 where the epoch is complete.
        """

    def close(self) -> None:
        """Remove the engine's temporary files."""


def learning_rate(config: W2VConfig, epoch: int, progress: float) -> float:
    """Linear from ``alpha`` to ``min_alpha`` over all epochs; ``progress`` is the share of this epoch's words done."""
    return config.alpha - (config.alpha - config.min_alpha) * (epoch + progress) / config.epochs
