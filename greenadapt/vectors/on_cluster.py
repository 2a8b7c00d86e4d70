"""Train word vectors on the nodes of a Ray cluster, and merge the changes that nodes learned from parts of the text.

**Mean and sum.** A row after few steps has moved along its gradient on every node: the sum of the changes of K nodes is
what one node would learn from the text of all. A row after many steps has converged on every node: the mean is right,
and the sum overshoots by a factor of K. The right merge depends on how far a row converges in an interval, which also
depends on the direction: along the direction that all rows share, which every step changes, a row converges within some
thousand words, while a rare word takes many epochs in the other directions.

**Rule.** For a row, let D be the sum of the changes δ_1 … δ_R of the R nodes that changed it. Near an optimum with
curvature λ, n steps at the rate α cover the share 1 - exp(-α n λ) of the distance, and R n steps 1 - exp(-R α n λ).
Along an eigenvector e of the curvature the merged change is therefore

    (e · D) (1 - exp(-R x)) / (R (1 - exp(-x))),   x = α n λ:

the sum for x → 0, the mean for x → ∞, and for R = 1 the change of the node. The curvature of log σ(± h · o) along o is
σ' h hᵀ and along h σ' o oᵀ, with σ' ≤ 1/4. Thus λ are the eigenvalues of E[h hᵀ] / 4 for output rows, and those of
Σ_o P(o) o oᵀ / 4, over words and negatives, for input rows. Only the ``RANK`` largest are computed; the other
directions have the mean of the other eigenvalues. n is the expected number of steps, from a word's count, subsampling,
window and negatives.

**Schedule.** From small random tables the learning of word2vec accelerates, which no merge can compensate. A round of
all nodes therefore has at most ``GROWTH`` times the words before it, and a single node trains on the first words.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from ml_dtypes import bfloat16

from greenadapt.cluster import Cluster, Node, raise_for_user
from greenadapt.config import W2VConfig
from greenadapt.errors import ResourceError, first_line
from greenadapt.progress import Progress
from greenadapt.store.arrays import Array, ArrayFile
from greenadapt.vectors.engine.local import LocalEngine
from greenadapt.vectors.engine.stream import (
    Advance,
    Stop,
    Stream,
    StreamPart,
    Weights,
    keep_thresholds,
    learning_rate,
    noise_weights,
    stream_parts,
)

RANK = 4
"""Number of directions with a separate curvature."""
GROWTH = 0.025
"""Upper limit of the parts of a round, as a share of all parts before it."""
_FREQUENT = 1 << 12  # words from whose rows the curvature is computed: nearly all steps
_SLOPE = 0.25  # the largest σ'
_BLOCK = 256  # rows
_LEAST = 1e-6  # of x; below it the rule equals the sum in bfloat16

Result = TypeVar("Result")


class Changes(NamedTuple):
    """Changed rows of a slice of a table, int32 ``(n,)``, and their changes, bfloat16 ``(n, dim)``.

    bfloat16 halves the bytes of float32; its error is at most 1/256 of a change.
    """

    rows: Array
    bits: Array
    """uint16, since a buffer of bfloat16 cannot be shared between processes."""

    @property
    def added(self) -> Array:
        """The changes as bfloat16."""
        return self.bits.view(bfloat16)


class Steps(NamedTuple):
    """Expected steps per word of text of each row of both tables, float64 ``(n_words,)`` each."""

    input: Array
    output: Array


class Curvature(NamedTuple):
    """Curvature along ``RANK`` ``directions`` ``(dim, RANK)``, and along all other directions."""

    directions: Array
    values: Array
    """float64, ``(RANK,)``."""
    remainder: float


def find_changes(table: Array, start: Array, threads: int = 1) -> Changes:
    """The changes of ``table`` since ``start``, both ``(n, dim)``."""

    def compare(begin: int) -> tuple[Array, Array]:
        added = table[begin : begin + _BLOCK] - start[begin : begin + _BLOCK]
        rows = np.flatnonzero(added.any(axis=1))
        return (rows + begin).astype(np.int32), added[rows].astype(bfloat16)

    return _concatenate(_blocks(compare, len(start), threads), start.shape[1])


def add(tables: Sequence[Array], changed: Changes, threads: int = 1) -> None:
    """Add ``changed`` to the first of ``tables``, and copy the changed rows to the other tables."""
    added = changed.added

    def add_block(begin: int) -> None:
        rows = changed.rows[begin : begin + _BLOCK]
        updated = tables[0][rows] + added[begin : begin + _BLOCK].astype(np.float32)
        for table in tables:
            table[rows] = updated

    _blocks(add_block, len(changed.rows), threads)


def _blocks(work: Callable[[int], Result], n: int, threads: int) -> list[Result]:
    """The results of ``work`` for blocks of ``n`` rows, small enough for a core's cache."""
    begins = range(0, n, _BLOCK)
    if threads == 1:
        return [work(begin) for begin in begins]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, begins))


def _concatenate(blocks: Sequence[tuple[Array, Array]], dim: int) -> Changes:
    if not blocks:
        return Changes(np.zeros(0, np.int32), np.zeros((0, dim), np.uint16))
    rows, added = zip(*blocks, strict=True)
    return Changes(np.concatenate(rows), np.concatenate(added).view(np.uint16))


def expected_steps(counts: Array, config: W2VConfig) -> Steps:
    """Compute ``Steps`` from the counts of the trained words, ``(n_words,)``."""
    n_kept = counts * (keep_thresholds(counts, config.sample) / float(2**32 - 1))
    noise = noise_weights(counts)
    negatives = config.negative * n_kept.sum() * noise / noise.sum()
    return Steps(n_kept * _context(config) / counts.sum(), (n_kept + negatives) / counts.sum())


def curvatures(weights: Weights, steps: Steps, config: W2VConfig) -> tuple[Curvature, Curvature]:
    """The curvature for input rows and for output rows, each computed from the other table."""
    shares = [table[:_FREQUENT] / table[:_FREQUENT].sum() for table in steps]
    context, frequent = _context(config), (weights.output[:_FREQUENT], weights.input[:_FREQUENT])
    targets = (1 + config.negative) * _moment(frequent[0], shares[1], 1)
    means = _moment(frequent[1], shares[0], 1 / context)
    return _curvature(targets), _curvature(means)


def _context(config: W2VConfig) -> float:
    """Expected number of words in a context."""
    return config.window + 1


def _moment(rows: Array, shares: Array, spread: float) -> Array:
    """E[x xᵀ], ``(dim, dim)``, of rows drawn by ``shares`` whose covariance is multiplied by ``spread``."""
    weights = shares.astype(np.float32)
    mean = weights @ rows
    moment = spread * ((rows * weights[:, None]).T @ rows) + (1 - spread) * np.outer(mean, mean)
    return np.asarray(moment, np.float64)


def _curvature(moment: Array) -> Curvature:
    values, directions = np.linalg.eigh(_SLOPE * moment)
    values = np.maximum(values, 0)
    other_value = float(values[:-RANK].mean()) if len(values) > RANK else 0.0
    return Curvature(directions[:, -RANK:].astype(np.float32), values[-RANK:], other_value)


def merge(
    changes_of_nodes: Sequence[Changes], shape: tuple[int, int], steps: Array, curvature: Curvature, threads: int = 1
) -> Changes:
    """Merge the ``changes_of_nodes`` of a slice of ``shape``.

    ``steps`` ``(n,)`` are the steps of each row in a node's interval, times the learning rate.
    """

    def merge_block(begin: int) -> tuple[Array, Array]:
        total, nodes = np.zeros((_BLOCK, shape[1]), np.float32), np.zeros(_BLOCK, np.int64)
        for changes in changes_of_nodes:
            begin_row, end_row = np.searchsorted(changes.rows, [begin, begin + _BLOCK])
            rows = changes.rows[begin_row:end_row] - begin
            total[rows] += changes.added[begin_row:end_row].astype(np.float32)
            nodes[rows] += 1
        rows = np.flatnonzero(nodes)
        return (rows + begin).astype(np.int32), _scale_changes(
            total[rows], nodes[rows, None], steps[rows + begin, None], curvature
        )

    return _concatenate(_blocks(merge_block, shape[0], threads), shape[1])


def _scale_changes(total: Array, nodes: Array, steps: Array, curvature: Curvature) -> Array:
    """Apply the rule to the sums of changes ``total`` ``(n, dim)``; ``nodes`` and ``steps`` are ``(n, 1)``."""
    other_shares = _share(steps * curvature.remainder, nodes)
    extra_shares = _share(steps * curvature.values, nodes) - other_shares
    projected = (total @ curvature.directions) * extra_shares.astype(np.float32)
    scaled = other_shares.astype(np.float32) * total + projected @ curvature.directions.T
    return np.asarray(scaled, bfloat16)


def _share(x: Array, nodes: Array) -> Array:
    """(1 - exp(-R x)) / (R (1 - exp(-x))), for R ``nodes``."""
    x = np.maximum(x, _LEAST)
    return np.asarray(np.expm1(-nodes * x) / (nodes * np.expm1(-x)))


SYNC_WORDS = 1_000_000
"""Words that each core trains on before the nodes merge; fewer at the start of training."""


def parts_per_core(n_parts: int, total: int) -> int:
    """Number of parts per core between two merges, for ``n_parts`` parts of a text of ``total`` words."""
    return max(1, round(SYNC_WORDS * n_parts / max(total, 1)))


def round_size(before: int, cores: Sequence[int], parts_per_core: int) -> tuple[int, int]:
    """The number of parts in the next round, after ``before`` parts, and the number of nodes that train on them.

    ``cores`` are the numbers of cores of the nodes; each core trains on ``parts_per_core`` parts if all nodes train.
    """
    if len(cores) == 1:
        return parts_per_core * cores[0], 1
    limit = int(GROWTH * before)
    n_nodes = int(np.searchsorted(np.cumsum(cores), limit, side="right"))
    if n_nodes < 2:
        return math.ceil((cores[0] + cores[1]) / GROWTH) - before, 1
    return min(limit, parts_per_core * sum(cores[:n_nodes])), n_nodes


def assign_parts(parts: Sequence[StreamPart], cores: Sequence[int], rng: np.random.Generator) -> list[list[StreamPart]]:
    """Assign ``parts`` to nodes at random, in proportion to ``cores``; a node's parts are in the order of the text."""
    ends = np.cumsum(cores) * len(parts) // sum(cores)
    return [[parts[i] for i in sorted(chosen.tolist())] for chosen in np.split(rng.permutation(len(parts)), ends[:-1])]


Message = tuple[Changes, Changes]
"""Changes of every n-th row of the input table and of the output table."""
_PATIENCE = 60  # seconds until a note tells which nodes are awaited
_TABLES = 4
"""Memory of a node, in sizes of both tables: initial tables, current tables, and changes sent and received."""


class Trainer:
    """An actor on a node, with its tables."""

    def start(self, text: Path, stream: tuple[Array, int], config: W2VConfig, input_: Array, output: Array) -> None:
        """Set the tables; ``stream`` has the counts and ``Stream.total`` of the ids in ``text``."""
        counts, total = stream
        self._engine = LocalEngine(Stream(ArrayFile(text)["ids"], np.zeros(1, np.int64), counts, total), config)
        self._steps, self._config = expected_steps(counts, config), config
        self._start, self._current = (Weights(np.array(input_), np.array(output)) for _ in range(2))

    def train(self, parts: Sequence[StreamPart], epoch: int) -> None:
        """Train on ``parts``."""
        self._engine.train(parts, self._current, epoch, lambda words, rate: None)

    def changes(self, n_slices: int) -> list[Any]:
        """The changes since the last ``apply``: a message for each slice."""
        threads, tables = self._config.workers, list(zip(self._current, self._start, strict=True))
        return [
            tuple(find_changes(table[i::n_slices], start[i::n_slices], threads) for table, start in tables)
            for i in range(n_slices)
        ]

    def merge(self, i: int, n_slices: int, rate: float, words: float, *messages: Message) -> Message:
        """Merge the changes of slice ``i``, after each node trained on about ``words`` words at ``rate``."""
        curvature_of_tables = curvatures(self._current, self._steps, self._config)
        tables = zip(self._start, self._steps, curvature_of_tables, strict=True)
        tables_of_changes = [
            merge(
                [message[t] for message in messages],
                table[i::n_slices].shape,
                rate * words * steps[i::n_slices],
                curvature,
                self._config.workers,
            )
            for t, (table, steps, curvature) in enumerate(tables)
        ]
        return tables_of_changes[0], tables_of_changes[1]

    def apply(self, *messages: Message) -> None:
        """Apply the merged changes of all slices to the tables."""
        n = len(messages)
        for i, message in enumerate(messages):
            for table, start, changed in zip(self._current, self._start, message, strict=True):
                add((start[i::n], table[i::n]), changed, self._config.workers)

    def tables(self) -> Weights:
        """The current tables."""
        return self._current


class ClusterEngine:
    """Trains on the nodes of ``cluster``, each with as many threads as Ray counts cores.

    ``text`` is the file with the ids of ``stream``, under the same path on every node.
    """

    def __init__(self, cluster: Cluster, text: Path, stream: Stream, config: W2VConfig, progress: Progress) -> None:
        self._ray, self._progress, self._text = cluster.ray, progress, text
        self._stream, self._config = stream, config
        self.parts = list(stream_parts(stream))
        self._parts_per_core = parts_per_core(len(self.parts), stream.total)
        self._nodes = [node for node in cluster.nodes if node.cores >= 1]
        self._trainers: dict[Node, Any] = {}
        cluster.require_files([text])

    def train(
        self, parts: Sequence[StreamPart], weights: Weights, epoch: int, advance: Advance, *, stop: Stop = lambda: False
    ) -> int:
        """Train on ``parts``, the last ones, like ``LocalEngine``; raises ``ResourceError`` if a node died."""
        n_parts = 0
        try:
            if not self._trainers:
                self._start_trainers(weights)
            while n_parts < len(parts) and not stop():
                n_parts += self._round(parts[n_parts:], epoch, advance)
            trained = self._ray.get(next(iter(self._trainers.values())).tables.remote())
        except self._ray.exceptions.RayError as error:
            raise_for_user(error)
            raise ResourceError(
                f"a node of the cluster died ({first_line(error)})",
                "look at its memory and logs, then run the same command again, which resumes",
            ) from None
        for table, trained_table in zip(weights, trained, strict=True):
            table[:] = trained_table
        return n_parts

    def close(self) -> None:
        """Stop the trainers."""
        for trainer in self._trainers.values():
            self._ray.kill(trainer)
        self._trainers.clear()

    def _rate(self, epoch: int, part: StreamPart) -> float:
        return learning_rate(self._config, epoch, (part.before + part.words) / self._stream.total)

    def _start_trainers(self, weights: Weights) -> None:
        """Start a trainer with ``weights`` on each node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        n_bytes = _TABLES * sum(table.nbytes for table in weights)
        stream = self._ray.put((np.asarray(self._stream.counts), self._stream.total))
        tables = [self._ray.put(table) for table in weights]
        calls = {}
        for node in self._nodes:
            if n_bytes > node.memory:
                raise ResourceError(
                    f"w2v needs about {n_bytes >> 20} MB on each node, and node {node.address} has "
                    f"{node.memory >> 20} MB",
                    "use --max-vocab or a higher --min-count, or leave this node out of the cluster",
                )
            strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
            actor = self._ray.remote(num_cpus=int(node.cores), scheduling_strategy=strategy)(Trainer)
            self._trainers[node] = trainer = actor.remote()
            config = replace(self._config, workers=int(node.cores))
            calls[trainer.start.remote(self._text, stream, config, *tables)] = node.address
        _, waiting = self._ray.wait(list(calls), num_returns=len(calls), timeout=_PATIENCE)
        if waiting:
            late = ", ".join(calls[call] for call in waiting)
            self._progress.note(f"waiting for {late}: other work has their cores, or numba compiles")
        self._ray.get(list(calls))

    def _round(self, parts: Sequence[StreamPart], epoch: int, advance: Advance) -> int:
        """Train on the first of ``parts`` and merge; returns their number."""
        before = (epoch + 1) * len(self.parts) - len(parts)
        size, n_nodes = round_size(before, [int(node.cores) for node in self._trainers], self._parts_per_core)
        chosen, nodes = parts[:size], list(self._trainers)[:n_nodes]
        rng = np.random.default_rng([self._config.seed, epoch, chosen[0].number])
        assigned = assign_parts(chosen, [int(node.cores) for node in nodes], rng)
        words = sum(part.words for part in chosen)
        calls = [self._trainers[node].train.remote(mine, epoch) for node, mine in zip(nodes, assigned, strict=True)]
        self._ray.get(calls)
        if len(self._trainers) > 1:
            self._synchronise(words / n_nodes, self._rate(epoch, chosen[0]))
        advance(words, self._rate(epoch, chosen[-1]))
        return len(chosen)

    def _synchronise(self, words: float, rate: float) -> None:
        """Merge the changes of all trainers, each a slice of the rows, and apply them to all tables."""
        trainers = list(self._trainers.values())
        n = len(trainers)
        sent = [trainer.changes.options(num_returns=n).remote(n) for trainer in trainers]
        merges = [
            trainer.merge.remote(i, n, rate, words, *messages)
            for i, (trainer, messages) in enumerate(zip(trainers, zip(*sent, strict=True), strict=True))
        ]
        self._ray.get([trainer.apply.remote(*merges) for trainer in trainers])
