"""Train word vectors on the nodes of a Ray cluster; ``averaging.py`` says by which rule."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from greenadapt.cluster import Cluster, Node, alive_nodes, raise_for_user, require_same_version
from greenadapt.config import W2VConfig
from greenadapt.errors import GreenadaptError, MissingError, ResourceError, byte_size, first_line
from greenadapt.progress import Progress
from greenadapt.storage.arrays import Array, ArrayFile
from greenadapt.vectors.averaging import (
    Changes,
    add,
    changes,
    curvatures,
    dealt,
    expected_steps,
    merged,
    parts_each,
    round_size,
)
from greenadapt.vectors.engines import Stream, Weights, learning_rate, never
from greenadapt.vectors.engines.parts import StreamPart

if TYPE_CHECKING:
    from greenadapt.vectors.engines.fast import FastEngine

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
