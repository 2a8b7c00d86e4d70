"""Train word vectors on the nodes of a Ray cluster, and merge what each learned from its part of the text.

**Why not the mean, why not the sum.** A row that few steps changed has moved along its gradient, and so it has on the
other nodes: K nodes together have made K times the way, the sum of their changes. A row that many steps changed has
arrived where the text of its node wants it, and so it has on the other nodes: then the mean is right, and the sum
overshoots by K. What decides between both is how far a row goes towards its optimum in an interval, and that depends on
the direction, too: all rows share a direction, in which each step of each word moves them, and which is near its
optimum within some thousand words, while a rare word takes many epochs for the others.

**Rule.** For a row, let D be the sum of the changes δ_1 … δ_R of the R nodes that changed it. Near an optimum with
curvature λ, n steps at the rate α go the share 1 - exp(-α n λ) of the way, and R n steps 1 - exp(-R α n λ). So along an
eigenvector e of the curvature the merged row goes

    (e · D) (1 - exp(-R x)) / (R (1 - exp(-x))),   x = α n λ:

the sum for x → 0, the mean for x → ∞, and for R = 1 what its node learned. The curvature of log σ(± h · o) along o is
σ' h hᵀ and along h σ' o oᵀ, with σ' ≤ 1/4. So for output rows λ are the eigenvalues of E[h hᵀ] / 4 and for input rows
those of Σ_o P(o) o oᵀ / 4, over own words and negatives. Only the ``RANK`` largest are computed; the other directions
have the mean of the other eigenvalues. n is what a word's count, subsampling, window and negatives make expected.

**When.** From small random tables word2vec learns faster and faster, which no rule for a merge makes up for: so a round
of all nodes has at most ``GROWTH`` of the words that were read before, and the first ones belong to one node.
"""

import importlib.util
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from ml_dtypes import bfloat16

from greenadapt.cluster import Cluster, Node, alive_nodes, raise_for_user, require_same_version
from greenadapt.config import W2VConfig
from greenadapt.errors import GreenadaptError, MissingError, ResourceError, byte_size, first_line
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Array, ArrayFile
from greenadapt.vectors.engines import Stream, StreamPart, Weights, keep_thresholds, learning_rate, never, noise_weights

if TYPE_CHECKING:
    from greenadapt.vectors.engines.fast import FastEngine


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


Message = tuple[Changes, Changes]
"""Of the input and the output table, each every n-th row of it."""
_PATIENCE = 60  # seconds until the user is told what is waited for
_TABLES = 4
"""Times the size of both tables that a node needs: at its start and now, and twice changes on their way."""


class Trainer:
    """The tables of one node, in a process there."""

    def start(self, text: Path, stream: tuple[Array, int], config: W2VConfig, input_: Array, output: Array) -> None:
        """Begin with these tables; ``stream`` has the counts and ``Stream.total`` of the ids in ``text``."""
        counts, total = stream
        self._engine = _engine(Stream(ArrayFile(text)["ids"], np.zeros(1, np.int64), counts, total), config)
        self._steps, self._config = expected_steps(counts, config), config
        self._start, self._now = (Weights(np.array(input_), np.array(output)) for _ in range(2))

    def train(self, parts: Sequence[StreamPart], epoch: int) -> float:
        """Train on ``parts``; returns the seconds that it took."""
        begin = perf_counter()
        self._engine.train_parts(parts, self._now, epoch, lambda words, rate: None)
        return perf_counter() - begin

    def changes(self, n_slices: int) -> Any:
        """What training changed since the last ``commit``: a message for each slice."""
        threads, tables = self._config.workers, list(zip(_both(self._now), _both(self._start), strict=True))
        sent = [
            tuple(changes(now[i::n_slices], start[i::n_slices], threads) for now, start in tables)
            for i in range(n_slices)
        ]
        self._sent = sum(changed.nbytes for message in sent for changed in message)
        return sent if n_slices > 1 else sent[0]

    def merge(self, i: int, n_slices: int, rate: float, words: float, *sent: Message) -> Message:
        """The merged changes of slice ``i``, after each node trained on about ``words`` at ``rate``."""
        sight = curvatures(self._now, self._steps, self._config)
        tables = zip((self._start.input, self._start.output), self._steps, sight, strict=True)
        made = [
            merged(
                [one[t] for one in sent],
                table[i::n_slices].shape,
                rate * words * steps[i::n_slices],
                curvature,
                self._config.workers,
            )
            for t, (table, steps, curvature) in enumerate(tables)
        ]
        return made[0], made[1]

    def receive(self, *made: Message) -> int:
        """Keep the merged changes of all slices for ``commit``; returns their bytes and those of the own changes."""
        self._made = made
        return self._sent + sum(changed.nbytes for message in made for changed in message)

    def commit(self) -> None:
        """Go on from the merged tables."""
        n = len(self._made)
        for i, message in enumerate(self._made):
            for now, start, changed in zip(_both(self._now), _both(self._start), message, strict=True):
                add((start[i::n], now[i::n]), changed, self._config.workers)
        self._made = ()

    def tables(self) -> tuple[Array, Array]:
        """Both tables, input and output."""
        return self._now.input, self._now.output


def _both(weights: Weights) -> tuple[Array, Array]:
    return weights.input, weights.output


def _engine(stream: Stream, config: W2VConfig) -> "FastEngine":
    from greenadapt.vectors.engines.fast import FastEngine

    return FastEngine(stream, config)


@dataclass
class Traffic:
    """What synchronising took, all rounds together."""

    synchronisations: int = 0
    training: float = 0
    """Seconds, of the slowest node of each round."""
    synchronising: float = 0
    """Seconds."""
    received: float = 0
    """Bytes that a node got from others."""
    lost: int = 0
    """Nodes that died."""


class ClusterEngine:
    """An ``Engine`` that trains on all nodes of ``cluster``, each with as many threads as Ray counts cores.

    ``text`` is the file with the ids of ``stream``, under the same path on every node. The nodes of an epoch are those
    that are there at its beginning. If one dies, the others train on its parts of the round.
    """

    note = ""

    def __init__(self, cluster: Cluster, text: Path, stream: Stream, config: W2VConfig, progress: Progress) -> None:
        self.traffic = Traffic()
        self._ray, self._progress, self._text = cluster.ray, progress, text
        self._stream, self._config = stream, config
        self._parts = _engine(stream, config).parts
        self._each = parts_each(config, len(self._parts), stream.total)
        self._trainers: dict[Node, Any] = {}
        # Ids of nodes that died, which Ray takes for alive for some seconds, or that joined and cannot train.
        self._left_out = set[str]()
        self._first = {node.id for node in cluster.nodes}
        self._require(cluster)

    def train_epoch(
        self,
        weights: Weights,
        epoch: int,
        advance: Callable[[int, float], None],
        *,
        first: int = 0,
        stop: Callable[[], bool] = never,
    ) -> int:
        """See ``Engine``; raises ``ResourceError`` if all nodes died."""
        self._start_trainers(weights)
        rest = list(self._parts[first:])
        while rest and not (self._is_end(rest) and stop()):
            before = epoch * len(self._parts) + len(self._parts) - len(rest)
            size, n_nodes = round_size(before, [int(node.cores) for node in self._trainers], self._each)
            parts, rest = rest[:size], rest[size:]
            missed = self._round(parts, n_nodes, epoch)
            rest = missed + rest
            words = sum(part.words for part in parts) - sum(part.words for part in missed)
            advance(words, self._rate(epoch, parts[-1]))
        for table, trained in zip(_both(weights), self._tables(), strict=True):
            table[:] = trained
        return len(self._parts) - len(rest) if rest else 0

    def close(self) -> None:
        """End the trainers, and say what merging took."""
        done = self.traffic
        if done.synchronisations:
            share = done.synchronising / (done.training + done.synchronising)
            self._progress.note(
                f"the nodes merged {done.synchronisations} times what they learned, in {share:.0%} of the time; each "
                f"received {byte_size(int(done.received))}"
            )
        for trainer in self._trainers.values():
            self._ray.kill(trainer)

    def _is_end(self, rest: list[StreamPart]) -> bool:
        """Whether all parts before ``rest`` are trained on, so that training can go on there another time."""
        return rest[0].number == self._parts[-len(rest)].number

    def _rate(self, epoch: int, part: StreamPart) -> float:
        return learning_rate(self._config, epoch, (part.before + part.words) / self._stream.total)

    def _start_trainers(self, weights: Weights) -> None:
        """Trainers on all nodes; if some have none yet, all begin with ``weights``."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node for node in alive_nodes(self._ray) if node.cores >= 1]
        new = [node for node in nodes if node not in self._trainers and node.id not in self._left_out]
        need = _TABLES * sum(table.nbytes for table in _both(weights))
        new = [node for node in new if self._can_train(node, need)]
        for node in new:
            here = NodeAffinitySchedulingStrategy(node.id, soft=False)
            made = self._ray.remote(num_cpus=int(node.cores), scheduling_strategy=here)(Trainer)
            self._trainers[node] = made.remote()
        if new:
            stream = self._ray.put((np.asarray(self._stream.counts), self._stream.total))
            tables = [self._ray.put(table) for table in _both(weights)]
            calls = {
                node: trainer.start.remote(self._text, stream, replace(self._config, workers=int(node.cores)), *tables)
                for node, trainer in self._trainers.items()
            }
            self._note_waiting(calls)
            self._ask(calls)

    def _can_train(self, node: Node, need: int) -> bool:
        """Whether a node has ``need`` bytes of memory and, if it joined, all that was asked of the others.

        One that joined and has not is left out, which is said; of those at the beginning this raises ``ResourceError``.
        """
        try:
            if need > node.memory:
                raise ResourceError(
                    f"w2v needs about {need >> 20} MB on each node, and node {node.address} has {node.memory >> 20} MB",
                    "use --max-vocab or a higher --min-count, or leave this node out of the cluster",
                )
            if node.id not in self._first:
                joined = Cluster(self._ray, [node])
                require_same_version(joined)
                self._require(joined)
        except GreenadaptError as error:
            if node.id in self._first:
                raise
            self._progress.warn(f"a node that joined is left out: {error.message}")
            self._left_out.add(node.id)
            return False
        return True

    def _require(self, cluster: Cluster) -> None:
        """Raise ``GreenadaptError`` unless all of these nodes can train on the text."""
        require_numba(cluster)
        cluster.require_files([self._text])

    def _note_waiting(self, calls: dict[Node, Any]) -> None:
        _, waiting = self._ray.wait(list(calls.values()), num_returns=len(calls), timeout=_PATIENCE)
        late = [node.address for node, call in calls.items() if call in waiting]
        if late:
            self._progress.note(f"waiting for {', '.join(late)}: other work has their cores, or numba compiles")

    def _round(self, parts: list[StreamPart], n_nodes: int, epoch: int) -> list[StreamPart]:
        """Train on ``parts`` and merge; returns those that were lost with nodes that died."""
        rng = np.random.default_rng([self._config.seed, epoch, parts[0].number])
        n_before, nodes = len(self._trainers), list(self._trainers)[:n_nodes]
        given = dict(zip(nodes, dealt(parts, [int(node.cores) for node in nodes], rng), strict=True))
        seconds = self._ask({node: self._trainers[node].train.remote(own, epoch) for node, own in given.items()})
        self.traffic.training += max(seconds.values(), default=0)
        kept = set(seconds)
        if n_before > 1 and seconds:
            begin = perf_counter()
            words = sum(part.words for node in seconds for part in given[node]) / len(seconds)
            kept &= self._synchronise(words, self._rate(epoch, parts[0]))
            self.traffic.synchronisations += 1
            self.traffic.synchronising += perf_counter() - begin
        return sorted(
            (part for node in given if node not in kept for part in given[node]), key=lambda part: part.number
        )

    def _synchronise(self, words: float, rate: float) -> set[Node]:
        """Merge what all trainers changed, each a slice of the rows, and go on from there; returns whose changes.

        No trainer's tables change before all have the merged rows, so that it can be repeated if one dies.
        """
        n = 0
        while n != len(self._trainers):
            trainers = list(self._trainers.values())
            n = len(trainers)
            sent = [trainer.changes.options(num_returns=n).remote(n) for trainer in trainers]
            slices = zip(*sent, strict=True) if n > 1 else [sent]
            made = [
                trainer.merge.remote(i, n, rate, words, *of_all)
                for i, (trainer, of_all) in enumerate(zip(trainers, slices, strict=True))
            ]
            received = self._ask({node: trainer.receive.remote(*made) for node, trainer in self._trainers.items()})
        self.traffic.received += sum(received.values()) / n * (n - 1) / n
        merged_nodes = set(self._trainers)
        self._ask({node: trainer.commit.remote() for node, trainer in self._trainers.items()})
        return merged_nodes

    def _tables(self) -> tuple[Array, Array]:
        """Those of a node that lives."""
        while True:
            node, trainer = next(iter(self._trainers.items()))
            found: dict[Node, tuple[Array, Array]] = self._ask({node: trainer.tables.remote()})
            if found:
                return found[node]

    def _ask(self, calls: dict[Node, Any]) -> dict[Node, Any]:
        """What calls of trainers return, without those that were lost; nodes that died are left out from now on.

        Raises what a call raised, and ``ResourceError`` if no node is left.
        """
        errors, answers = self._ray.exceptions, {}
        for node, call in calls.items():
            try:
                answers[node] = self._ray.get(call)
            except errors.RayError as error:
                raise_for_user(error)
                if isinstance(error, errors.RayTaskError) and not isinstance(error.cause, errors.RayError):
                    raise
                why = error  # the node is dead, or one that made what the call was given
        if len(answers) < len(calls):
            self._leave_out_dead(why)
        return answers

    def _leave_out_dead(self, why: Exception) -> None:
        """Forget the trainers that do not answer; ``why`` is raised if all do."""
        dead = []
        for node, answer in [(node, trainer.__ray_ready__.remote()) for node, trainer in self._trainers.items()]:
            try:
                self._ray.get(answer)
            except self._ray.exceptions.RayError:
                dead.append(node)
        if not dead:
            raise why
        for node in dead:
            self._ray.kill(self._trainers.pop(node))
            self._left_out.add(node.id)
            self._progress.warn(f"node {node.address} died, the others train on what it was given")
        self.traffic.lost += len(dead)
        if not self._trainers:
            raise ResourceError(
                f"all nodes of the cluster died ({first_line(why)})",
                "look at their memory and logs, then run the same command again",
            )


def require_numba(cluster: Cluster) -> None:
    """Raise ``MissingError`` unless every node can run the fast engine."""
    for node, found in cluster.on_each_node(importlib.util.find_spec, "numba").items():
        if found is None:
            raise MissingError(
                f"node {node.address} of the cluster has no numba", 'pip install "greenadapt[fast]" there'
            )
