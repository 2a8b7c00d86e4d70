"""What a word2vec engine is: something that trains two weight tables on a stream of word ids, one epoch at a time."""

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
    """What is trained on: words as numbers, the most frequent is 0."""

    ids: Array
    """int32, ``(n_tokens,)``; a number that is not below ``len(counts)`` is a word too rare to be trained."""
    lines: Array
    """int64, ``(n_lines + 1,)``: where each line begins in ``ids``, and the end."""
    counts: Array
    """int64, ``(n_words,)``: how often each trained word occurs in ``ids``."""

    @property
    def n_words(self) -> int:
        """Number of trained words."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Occurrences of trained words in one epoch."""
        return int(self.counts.sum())


class Engine(Protocol):
    """Trains ``Weights`` in place.

    An epoch depends on the weights at its start, the configuration and the epoch's number only (with one worker), so a
    run that goes on from a checkpoint ends as an uninterrupted one.
    """

    @property
    def note(self) -> str:
        """What the user should know before training; empty if nothing."""

    def train_epoch(self, weights: Weights, epoch: int, advance: Callable[[int, float], None]) -> None:
        """Train epoch number ``epoch`` (from 0); ``advance(words, learning_rate)`` is called as parts are done."""

    def close(self) -> None:
        """Remove what the engine wrote for itself."""


def learning_rate(config: W2VConfig, epoch: int, progress: float) -> float:
    """Linear from ``alpha`` to ``min_alpha`` over all epochs; ``progress`` is the share of this epoch's words done."""
    return config.alpha - (config.alpha - config.min_alpha) * (epoch + progress) / config.epochs
