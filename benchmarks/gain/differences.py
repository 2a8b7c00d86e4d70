"""Statistics of a run's predictions, and differences between arms."""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from greenadapt.store.arrays import Array
from greenadapt.store.files import Json
from greenadapt.tasks.conll import EntitySpan, Sentence, entities
from greenadapt.tasks.metrics import paired_samples

SAMPLES = 2000
_LEVEL = 0.95


def unseen_counts(sentences: Sequence[Sentence], predictions: Sequence[Json], known_words: frozenset[str]) -> Array:
    """``entity_counts`` (n, 3) of those entities, true or predicted, with a word that is not in ``known_words``."""

    def unseen(words: Sequence[str], tags: Sequence[str]) -> set[EntitySpan]:
        new = [word.lower() not in known_words for word in words]
        return {entity for entity in entities(tags) if any(new[entity.first : entity.last + 1])}

    counts = np.zeros((len(sentences), 3))
    for row, (sentence, prediction) in enumerate(zip(sentences, predictions, strict=True)):
        gold, predicted = unseen(sentence.words, sentence.tags or ()), unseen(sentence.words, prediction["tags"])
        counts[row] = len(gold & predicted), len(predicted), len(gold)
    return counts


def packed(statistics: Array) -> Json:
    """Statistics (n_examples, m) in a few kilobytes of text; whole numbers up to 255 take a byte before compression."""
    small = statistics.astype(np.uint8)
    array = small if np.array_equal(small, statistics) else statistics.astype(np.float64)
    columns = np.ascontiguousarray(array.T)  # compress better than rows
    data = b85encode(zlib.compress(columns.tobytes(), 9)).decode()
    return {"examples": len(statistics), "type": columns.dtype.str, "data": data}


def unpacked(packed_array: Json) -> Array:
    """The statistics (n_examples, m) float64 that ``packed`` was given."""
    flat = np.frombuffer(zlib.decompress(b85decode(packed_array["data"])), packed_array["type"])
    return flat.reshape(-1, packed_array["examples"]).T.astype(np.float64)


@dataclass(frozen=True)
class Compared:
    """The difference between two arms on one set, or its mean over sets."""

    ours: float
    theirs: float
    samples: Array
    """(SAMPLES,) differences of the bootstrap."""

    @property
    def difference(self) -> float:
        return self.ours - self.theirs

    def as_dict(self) -> Json:
        low, high = np.quantile(self.samples, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
        return {"ours": self.ours, "theirs": self.theirs, "difference": self.difference, "low": low, "high": high}


def compare(ours: Array, theirs: Array, main_score: Any, samples: int = SAMPLES) -> Compared:
    """The difference on one set from statistics (n_seeds, n_examples, m); seeds and examples are drawn, see
    ``paired_bootstrap``.
    """
    means = [float(main_score(sums.sum(axis=1)).mean()) for sums in (ours, theirs)]
    return Compared(*means, paired_samples(ours, theirs, main_score, samples))


def over_sets(compared_sets: Sequence[Compared], seed: int = 0) -> Compared:
    """The mean over sets. A hierarchical bootstrap: sets are drawn with replacement, then seeds and examples in each.

    A set that is drawn twice in a sample has different seeds and examples each time.
    """
    samples = np.stack([compared.samples for compared in compared_sets])
    n_sets, n_samples = samples.shape
    random = np.random.default_rng(seed)
    sets, inner = (
        random.integers(n_sets, size=(n_samples, n_sets)),
        random.integers(n_samples, size=(n_samples, n_sets)),
    )
    means = [float(np.mean([getattr(compared, name) for compared in compared_sets])) for name in ("ours", "theirs")]
    return Compared(*means, samples[sets, inner].mean(axis=1))
