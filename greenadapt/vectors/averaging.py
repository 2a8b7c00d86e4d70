"""Merge what several nodes learned from different parts of a text, each on its own copy of the same tables.

**Why not the mean, why not the sum.** A row that few steps changed has moved along its gradient, and so it has on the
other nodes: K nodes together have made K times the way, the sum of their changes. A row that many steps changed has
arrived where the text of its node wants it, and so it has on the other nodes: then the mean is right, and the sum
overshoots by K. What decides between both is how far a row goes towards its optimum in an interval, and that depends
on the direction, too: all rows share a direction, in which each step of each word moves them, and which is near its
optimum within some thousand words, while a rare word takes many epochs for the others.

**Rule.** For a row, let D be the sum of the changes δ_1 … δ_R of the R nodes that changed it. Near an optimum with
curvature λ, n steps at the rate α go the share 1 - exp(-α n λ) of the way, and R n steps 1 - exp(-R α n λ). So along
an eigenvector e of the curvature the merged row goes

    (e · D) (1 - exp(-R x)) / (R (1 - exp(-x))),   x = α n λ:

the sum for x → 0, the mean for x → ∞, and for R = 1 what its node learned. The curvature of log σ(± h · o) along o is
σ' h hᵀ and along h σ' o oᵀ, with σ' ≤ 1/4. So for output rows λ are the eigenvalues of E[h hᵀ] / 4 and for input rows
those of Σ_o P(o) o oᵀ / 4, over own words and negatives. Only the ``RANK`` largest are computed; the other directions
have the mean of the other eigenvalues. n is what a word's count, subsampling, window and negatives make expected.

**When.** From small random tables word2vec learns faster and faster, which no rule for a merge makes up for: so a round
of all nodes has at most ``GROWTH`` of the words that were read before, and the first ones belong to one node.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from ml_dtypes import bfloat16

from greenadapt.config import W2VConfig
from greenadapt.storage.arrays import Array
from greenadapt.vectors.engines import Weights
from greenadapt.vectors.engines.parts import StreamPart, keep_thresholds, noise_weights

RANK = 4
"""Directions whose curvature is computed."""
GROWTH = 0.025
"""Parts of the first rounds, as a share of all parts before."""
_FREQUENT = 1 << 12  # words whose rows tell the curvature: nearly all steps are theirs
_SLOPE = 0.25  # the largest σ'
_BLOCK = 256  # rows
_LEAST = 1e-6  # of x; below, the sum is right to more digits than are sent

Made = TypeVar("Made")


class Changes(NamedTuple):
    """Changed rows of a slice of a table, int32 ``(n,)``, with what was added to them, bfloat16 ``(n, dim)``.

    bfloat16 is as fast to write as float32 and half as long; its error is at most a 256th of a change.
    """

    rows: Array
    bits: Array
    """uint16, since a buffer of bfloat16 cannot be shared between processes."""

    @property
    def added(self) -> Array:
        """The bits as numbers."""
        return self.bits.view(bfloat16)

    @property
    def nbytes(self) -> int:
        """Bytes that are sent."""
        return int(self.rows.nbytes + self.bits.nbytes)


class Steps(NamedTuple):
    """Expected steps of each row of both tables per word of text, float64 ``(n_words,)`` each."""

    input: Array
    output: Array


class Curvature(NamedTuple):
    """Curvature that a step sees: of ``RANK`` ``directions`` ``(dim, RANK)``, and of every other direction."""

    directions: Array
    values: Array
    """float64, ``(RANK,)``."""
    others: float


def changes(table: Array, start: Array, threads: int = 1) -> Changes:
    """What training made of ``start`` ``(n, dim)``."""

    def changed(begin: int) -> tuple[Array, Array]:
        added = table[begin : begin + _BLOCK] - start[begin : begin + _BLOCK]
        rows = np.flatnonzero(added.any(axis=1))
        return (rows + begin).astype(np.int32), added[rows].astype(bfloat16)

    return _joined(_blocks(changed, len(start), threads), start.shape[1])


def add(tables: Sequence[Array], changed: Changes, threads: int = 1) -> None:
    """Add ``changed`` to the first of ``tables``; its changed rows are those of the others, too."""
    added = changed.added

    def one(begin: int) -> None:
        rows = changed.rows[begin : begin + _BLOCK]
        new = tables[0][rows] + added[begin : begin + _BLOCK].astype(np.float32)
        for table in tables:
            table[rows] = new

    _blocks(one, len(changed.rows), threads)


def _blocks(work: Callable[[int], Made], n: int, threads: int) -> list[Made]:
    """What ``work`` makes of each block of ``n`` rows: of so few that they stay in a core's cache."""
    begins = range(0, n, _BLOCK)
    if threads == 1:
        return [work(begin) for begin in begins]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, begins))


def _joined(blocks: Sequence[tuple[Array, Array]], dim: int) -> Changes:
    if not blocks:
        return Changes(np.zeros(0, np.int32), np.zeros((0, dim), np.uint16))
    rows, added = zip(*blocks, strict=True)
    return Changes(np.concatenate(rows), np.concatenate(added).view(np.uint16))


def expected_steps(counts: Array, config: W2VConfig) -> Steps:
    """See ``Steps``; ``counts`` are those of the trained words, ``(n_words,)``."""
    kept = counts * (keep_thresholds(counts, config.sample) / float(2**32 - 1))
    noise = noise_weights(counts, config.ns_exponent)
    negatives = config.negative * kept.sum() * noise / noise.sum()
    return Steps(kept * _context(config) / counts.sum(), (kept + negatives) / counts.sum())


def curvatures(weights: Weights, steps: Steps, config: W2VConfig) -> tuple[Curvature, Curvature]:
    """The curvature that steps of input rows and of output rows see, as a function of the other table."""
    shares = [table[:_FREQUENT] / table[:_FREQUENT].sum() for table in steps]
    context, frequent = _context(config), (weights.output[:_FREQUENT], weights.input[:_FREQUENT])
    targets = (1 + config.negative) * _moment(frequent[0], shares[1], 1)
    means = _moment(frequent[1], shares[0], 1 / context)
    return _curvature(targets), _curvature(means if config.cbow_mean else context**2 * means)


def _context(config: W2VConfig) -> float:
    """Expected words of a context."""
    return config.window + 1 if config.shrink_windows else 2 * config.window


def _moment(rows: Array, shares: Array, spread: float) -> Array:
    """E[x xᵀ], ``(dim, dim)``, of rows drawn by ``shares`` whose covariance is multiplied by ``spread``."""
    weights = shares.astype(np.float32)
    mean = weights @ rows
    moment: Array = spread * ((rows * weights[:, None]).T @ rows) + (1 - spread) * np.outer(mean, mean)
    return moment.astype(np.float64)


def _curvature(moment: Array) -> Curvature:
    values, directions = np.linalg.eigh(_SLOPE * moment)
    values = np.maximum(values, 0)
    others = float(values[:-RANK].mean()) if len(values) > RANK else 0.0
    return Curvature(directions[:, -RANK:].astype(np.float32), values[-RANK:], others)


def merged(
    sent: Sequence[Changes], shape: tuple[int, int], steps: Array, curvature: Curvature, threads: int = 1
) -> Changes:
    """The merged changes of a slice of ``shape`` of which each node ``sent`` its own.

    ``steps`` ``(n,)`` are those of each row in a node's interval, times the learning rate.
    """

    def block(begin: int) -> tuple[Array, Array]:
        total, nodes = np.zeros((_BLOCK, shape[1]), np.float32), np.zeros(_BLOCK, np.int64)
        for each in sent:
            first, last = np.searchsorted(each.rows, [begin, begin + _BLOCK])
            own = each.rows[first:last] - begin
            total[own] += each.added[first:last].astype(np.float32)
            nodes[own] += 1
        own = np.flatnonzero(nodes)
        return (own + begin).astype(np.int32), _gone(total[own], nodes[own, None], steps[own + begin, None], curvature)

    return _joined(_blocks(block, shape[0], threads), shape[1])


def _gone(total: Array, nodes: Array, steps: Array, curvature: Curvature) -> Array:
    """How far rows go whose changes are ``total`` ``(n, dim)``; ``nodes`` and ``steps`` are ``(n, 1)``."""
    others = _share(steps * curvature.others, nodes)
    along = _share(steps * curvature.values, nodes) - others
    turned = (total @ curvature.directions) * along.astype(np.float32)
    gone = others.astype(np.float32) * total + turned @ curvature.directions.T
    rounded: Array = gone.astype(bfloat16)
    return rounded


def _share(x: Array, nodes: Array) -> Array:
    """(1 - exp(-R x)) / (R (1 - exp(-x))), for R ``nodes``."""
    x = np.maximum(x, _LEAST)
    share: Array = np.expm1(-nodes * x) / (nodes * np.expm1(-x))
    return share


def parts_each(config: W2VConfig, n_parts: int, total: int) -> int:
    """How many of ``n_parts`` parts of a text of ``total`` words a core takes between two merges."""
    return max(1, round(config.sync_words * n_parts / max(total, 1)))


def round_size(before: int, cores: Sequence[int], each: int) -> tuple[int, int]:
    """How many parts the next round has, after ``before`` parts, and how many nodes, the first ones, train on them.

    ``cores`` are those of the nodes, each of which takes ``each`` parts if all nodes take part.
    """
    if len(cores) == 1:
        return each * cores[0], 1
    may = int(GROWTH * before)
    n_nodes = int(np.searchsorted(np.cumsum(cores), may, side="right"))
    if n_nodes < 2:
        return math.ceil((cores[0] + cores[1]) / GROWTH) - before, 1
    return min(may, each * sum(cores[:n_nodes])), n_nodes


def dealt(parts: Sequence[StreamPart], cores: Sequence[int], rng: np.random.Generator) -> list[list[StreamPart]]:
    """``parts`` dealt at random to nodes in proportion to their ``cores``, each node's in the order of the text."""
    ends = np.cumsum(cores) * len(parts) // sum(cores)
    return [[parts[i] for i in sorted(own.tolist())] for own in np.split(rng.permutation(len(parts)), ends[:-1])]
