"""A text whose words have known neighbours: groups of words that stand for each other.

There are ``GROUPS`` groups of ``SIZE`` words. A topic is a random graph of ``STATES`` places, each with a group and
followed by one of ``NEXT`` places, by 1 / rank. These are drawn with replacement: two can be the same one, and one the
place itself. Every group has ``TOPICS_EACH`` places, now and then two in one topic. A line has one topic, by
1 / √rank, and walks through its graph from a random place on; a share ``NOISE`` of its words are of any group instead.
A group gives one of its words by 1 / rank, so words of a group differ in how often they occur and in nothing else.
Vectors are scored by how many of a word's ``SIZE`` - 1 nearest words are of its own group.
"""

import numpy as np

from greenadapt.storage.arrays import Array
from greenadapt.vectors.neighbours import nearest
from greenadapt.vectors.word_vectors import WordVectors

GROUPS, SIZE = 1000, 10
TOPICS_EACH, STATES, NEXT = 3, 30, 3
NOISE = 0.5
LINE = 25
_QUERIES = 1000


def words() -> list[str]:
    """The words ``group-member``, by group."""
    return [f"{group}-{member}" for group in range(GROUPS) for member in range(SIZE)]


def drawn(seed: int, n_tokens: int) -> Array:
    """A text of about ``n_tokens`` words: rows of ``words()``, int64 ``(n_lines, LINE)``."""
    rng = np.random.default_rng(seed)
    topics = np.concatenate([rng.permutation(GROUPS) for _ in range(TOPICS_EACH)]).reshape(-1, STATES)
    follows = rng.integers(STATES, size=(len(topics), STATES, NEXT))
    n_lines = n_tokens // LINE
    topic = rng.choice(len(topics), n_lines, p=_shares(len(topics), 0.5))
    state = rng.integers(STATES, size=n_lines)
    groups = np.empty((n_lines, LINE), np.int64)
    for position in range(LINE):
        groups[:, position] = topics[topic, state]
        state = follows[topic, state, rng.choice(NEXT, n_lines, p=_shares(NEXT, 1))]
    is_noise = rng.random(groups.shape) < NOISE
    groups[is_noise] = rng.integers(GROUPS, size=int(is_noise.sum()))
    return groups * SIZE + rng.choice(SIZE, groups.shape, p=_shares(SIZE, 1))


def _shares(n: int, exponent: float) -> Array:
    """Shares in proportion to 1 / rank^``exponent``, whose sum is 1."""
    weights: Array = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def scores(vectors: WordVectors) -> dict[str, float]:
    """Share of the nearest words that are of the own group, for the more frequent half of the words and the rest."""
    group = np.array([int(word.partition("-")[0]) for word in vectors.words])
    half, rng = len(group) // 2, np.random.default_rng(0)
    figures = {}
    for name, rows in (("frequent", np.arange(half)), ("rare", np.arange(half, len(group)))):
        queries = rng.choice(rows, min(_QUERIES, len(rows)), replace=False)
        neighbours, _ = nearest(vectors.matrix[queries], vectors.matrix, SIZE - 1, queries[:, None])
        figures[f"own group, {name}"] = float((group[neighbours] == group[queries, None]).mean())
    return figures
