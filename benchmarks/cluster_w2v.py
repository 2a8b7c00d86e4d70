"""Word vectors on a cluster: how good they are, what a merge and what Ray costs, and what follows for larger clusters.

- ``quality``: vectors of 1, 2, 4 and 8 nodes of one thread, at equal words (``cluster_quality.py``).
- ``sync``: CPU seconds of one merge on one of two nodes by size of the tables, without Ray.
- ``overhead``: the same training by one Ray node of two cores and without Ray, in turns, and by more nodes of one core;
  seconds, and CPU seconds of all processes, which depend less on what else runs.
- ``model``: computes words/s of N nodes from what ``sync`` and ``overhead`` measured. The last column of ``overhead``
  is what it says of the nodes there; ``tc qdisc add dev lo root tbf rate 1gbit burst 1mb latency 50ms`` makes the
  network between them one of ``--gbit 1``.

What is done is kept in ``--work``: the same command goes on where it was.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cluster_quality
import engine_texts
import numpy as np
import psutil
from cluster_nodes import started
from records import Records
from tables import aligned

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.storage.arrays import write_arrays
from greenadapt.storage.files import Json, hash_json
from greenadapt.vectors.cbow import train, vocabulary_size
from greenadapt.vectors.engines import StreamPart
from greenadapt.vectors.on_cluster import expected_steps


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this part of ``cluster.py``."""
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--corpus", type=Path, help="a text file, one paragraph a line, gz too")
    text.add_argument("--planted", action="store_true", help="text with known neighbours instead (planted.py)")
    parser.add_argument("--tokens", type=float, default=3e6, help="length of the planted text")
    parser.add_argument("--model", default="minilm", help="whose tokenizer splits the text, and whose rows are found")
    parser.add_argument("--measure", choices=_MEASURES, required=True)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sync-words", type=int, nargs="+", default=[W2VConfig.sync_words])
    parser.add_argument("--rows", type=int, nargs="+", default=[33_500, 100_000, 300_000])
    parser.add_argument("--speed", type=float, default=0.9e6, help="words/s of a core, for the model")
    parser.add_argument("--cores", type=int, default=16, help="of a node, for the model")
    parser.add_argument("--gbit", type=float, default=10, help="of the network between the nodes, for what is computed")
    parser.add_argument("--work", type=Path, required=True)


def main(options: argparse.Namespace) -> None:
    """Measure, and print a table."""
    options.work.mkdir(parents=True, exist_ok=True)
    print(aligned([[str(cell) for cell in row] for row in _MEASURES[options.measure](options)]))


def _text(options: argparse.Namespace, seed: int = 1) -> Json:
    if options.planted:
        return {"planted": seed, "tokens": int(options.tokens)}
    return {"corpus": str(options.corpus.resolve()), "bytes": options.corpus.stat().st_size, "model": options.model}


def _quality(options: argparse.Namespace) -> Iterator[list[Any]]:
    records, head = Records(options.work / "cluster.jsonl"), True
    for sync_words in options.sync_words:
        for n_nodes in options.nodes:
            runs = []
            for seed in range(1, options.seeds + 1):
                settings = {"text": _text(options, seed), "nodes": n_nodes, "sync_words": sync_words, "seed": seed}
                settings |= {"dim": options.dim, "epochs": options.epochs}
                key = hash_json(settings)
                if key not in records.by_key:
                    folder = engine_texts.made(settings["text"], options.work, is_written=False)
                    result = cluster_quality.measured(settings, folder, options.work)
                    records.add({"key": key, "asked": settings, "result": result})
                runs.append(records.by_key[key]["result"])
            if head:
                yield ["nodes", "words a core", *runs[0]]
                head = False
            figures = [[run[name] for run in runs] for name in runs[0]]
            yield [n_nodes, f"{sync_words:,}", *(_spread(values) for values in figures)]


def _spread(values: list[float]) -> str:
    mean = f"{np.mean(values):.0f}" if isinstance(values[0], int) else f"{np.mean(values):.4f}"
    return mean if len(values) == 1 or isinstance(values[0], int) else f"{mean} ± {np.std(values, ddof=1):.4f}"


def _sync(options: argparse.Namespace) -> Iterator[list[Any]]:
    """Two nodes, 200,000 words each of a text whose words are drawn by 1 / rank; medians."""
    yield ["rows", "MB of both tables", "changed rows", "MB sent", *_STEPS, "CPU s, all", "ns a number"]
    for n_rows in options.rows:
        with TemporaryDirectory(dir=options.work) as folder:
            seconds, sent, share = _synchronised(n_rows, options, Path(folder))
        numbers = 2 * n_rows * options.dim
        total = sum(seconds)
        cells = [f"{n_rows:,}", f"{4 * numbers / 1e6:.0f}", f"{share:.2f}", f"{sent / 1e6:.1f}"]
        yield [*cells, *(f"{value:.3f}" for value in seconds), f"{total:.3f}", f"{total / numbers * 1e9:.1f}"]


_STEPS = ("changes", "merge", "commit")


def _synchronised(n_rows: int, options: argparse.Namespace, folder: Path) -> tuple[list[float], float, float]:
    """Median seconds of each step on one node of two, bytes that a node sends, and the share of rows it changed."""
    from greenadapt.vectors.on_cluster import Trainer

    (sync_words,) = options.sync_words
    config = W2VConfig(dim=options.dim, engine="fast")
    rng = np.random.default_rng(0)
    chances = np.cumsum(1 / np.arange(1, n_rows + 1))
    ids = np.searchsorted(chances / chances[-1], rng.random(2 * sync_words)).astype(np.int32)
    counts = np.maximum((1e9 / np.arange(1, n_rows + 1) / chances[-1]).astype(np.int64), 1)
    write_arrays(folder / "ids", {"ids": ids})
    tables = rng.normal(size=(2, n_rows, options.dim)).astype(np.float32) * 0.1
    nodes = [Trainer(), Trainer()]
    for node in nodes:
        node.start(folder / "ids", (counts, int(counts.sum())), config, *tables)
    taken, sent_bytes, share = [], 0.0, 0.0
    for _ in range(options.repeats):
        for number, node in enumerate(nodes):
            borders = np.arange(number * sync_words, (number + 1) * sync_words + 1, 25)
            node.train([StreamPart(number, borders, 0, sync_words)], 0)
        begin = time.process_time()
        sent = [nodes[0].changes(2), nodes[1].changes(2)]
        cut = time.process_time()
        merges = [nodes[i].merge(i, 2, config.alpha, sync_words, *(rows[i] for rows in sent)) for i in range(2)]
        merged = time.process_time()
        for node in nodes:
            node.receive(*merges)
            node.commit()
        taken.append(np.array([cut - begin, merged - cut, time.process_time() - merged]) / 2)
        sent_bytes = sum(changed.nbytes for message in sent[0] for changed in message)
        share = sum(len(changed.rows) for message in sent[0] for changed in message) / (2 * n_rows)
    return np.median(taken, axis=0).tolist(), sent_bytes, share


def _overhead(options: argparse.Namespace) -> Iterator[list[Any]]:
    """In turns: no cluster, and clusters of ``--nodes`` nodes; one node has two cores, others have one each."""
    yield [
        "nodes",
        "s, each run",
        "CPU s, each run",
        "words/s, best",
        "merges",
        "s a merge",
        "bytes a word and node",
        "s training",
        "s a merge, computed",
    ]
    folder = engine_texts.made(_text(options), options.work, is_written=False)
    runs: dict[int, list[tuple[float, float, Any]]] = {}
    for _ in range(options.repeats):
        for n_nodes in [0, *options.nodes]:
            runs.setdefault(n_nodes, []).append(_run(n_nodes, folder, options))
    words = _words(folder, options) * options.epochs
    for n_nodes, results in runs.items():
        best, _, traffic = min(results, key=lambda run: run[0])
        taken = [", ".join(f"{run[i]:.1f}" for run in results) for i in range(2)]
        row = [n_nodes, *taken, f"{words / best:,.0f}"]
        if traffic is not None:
            merges = traffic["synchronisations"]
            row += [merges, f"{traffic['synchronising'] / max(merges, 1):.3f}"]
            row += [f"{traffic['received'] / words:.1f}", f"{traffic['training']:.1f}"]
            if merges:
                row.append(f"{_merge_seconds(folder, n_nodes, words / merges / n_nodes, options):.3f}")
        yield row + [""] * (9 - len(row))


def _merge_seconds(folder: Path, n_nodes: int, words: float, options: argparse.Namespace) -> float:
    """The predicted seconds of a merge of one-core nodes that trained on ``words`` words each, over ``--gbit``."""
    corpus, config = PreparedCorpus.open(folder), W2VConfig(dim=options.dim)
    counts = np.array(corpus.counts[: vocabulary_size(corpus.counts, config)])
    forecast = predicted(counts, config, options.dim, n_nodes, words, cores=1)
    return float(forecast["merging"] + 8 * forecast["bytes"] / (options.gbit * 1e9))


def _words(folder: Path, options: argparse.Namespace) -> int:
    corpus = PreparedCorpus.open(folder)
    return int(corpus.counts[: vocabulary_size(corpus.counts, W2VConfig(dim=options.dim))].sum())


def _cpu_seconds() -> float:
    """CPU seconds of this process and of all its descendants that run."""
    usages = [process.cpu_times() for process in [psutil.Process(), *psutil.Process().children(recursive=True)]]
    return sum(usage.user + usage.system for usage in usages)


def _run(n_nodes: int, folder: Path, options: argparse.Namespace) -> tuple[float, float, Json | None]:
    """Seconds of training without the start of the cluster, CPU seconds, and the bytes that nodes sent."""
    (sync_words,) = options.sync_words
    config = W2VConfig(dim=options.dim, epochs=options.epochs, engine="fast", workers=2, sync_words=sync_words)
    corpus, traffic, cpu = PreparedCorpus.open(folder), list[Json](), list[float]()
    with TemporaryDirectory(dir=options.work) as work:
        if not n_nodes:
            begin, before = time.perf_counter(), _cpu_seconds()
            train(corpus, config, Path(work), progress=Silent(), max_memory=32 << 30)
            return time.perf_counter() - begin, _cpu_seconds() - before, None
        from greenadapt.cluster import connected
        from greenadapt.vectors import on_cluster

        class Watched(on_cluster.ClusterEngine):
            def close(self) -> None:
                traffic.append(asdict(self.traffic))
                cpu.append(_cpu_seconds())
                super().close()

        with started(n_nodes, 2 if n_nodes == 1 else 1, 1 << 30) as cluster, connected(cluster.address) as ray_cluster:
            on_cluster.ClusterEngine, plain = Watched, on_cluster.ClusterEngine  # type: ignore[misc]
            begin, before = time.perf_counter(), _cpu_seconds()
            train(corpus, config, Path(work), progress=Silent(), max_memory=32 << 30, cluster=ray_cluster)
            seconds = time.perf_counter() - begin
            on_cluster.ClusterEngine = plain  # type: ignore[misc]
    return seconds, cpu[0] - before, traffic[0]


def _model(options: argparse.Namespace) -> Iterator[list[Any]]:
    """Computed, not measured.

    With N nodes of c cores, v words/s of a core, S words of a core between merges, n words of vocabulary, d dimensions,
    B bits/s between the nodes, m = 12 ns of one core (measured), and s_w the steps that a word brings to row w::

        words/s = N c S / (S / v + m 2 n d / c + 8 (1 - 1/N) (b(c S) + b(N c S)) / B)
        b(W)    = (2 d + 4) sum over the rows w of both tables of 1 - exp(-s_w W)
    """
    (sync_words,) = options.sync_words
    corpus = PreparedCorpus.open(engine_texts.made(_text(options), options.work, is_written=False))
    config = W2VConfig(dim=options.dim)
    counts = np.array(corpus.counts[: vocabulary_size(corpus.counts, config)])
    yield ["vocabulary", "Gbit/s", "nodes", "MB a merge and node", "s training", "s merging", "s sending", "words/s"]
    zipf = np.maximum((14e9 / np.arange(1, 1_000_001) / 14.4).astype(np.int64), 5)
    for name, frequencies in ((f"{len(counts):,}", counts), (f"{len(zipf):,}, 1 / rank", zipf)):
        for gigabits in (10, 100):
            for n_nodes in (1, 2, 8, 64):
                words = options.cores * sync_words
                forecast = predicted(frequencies, config, options.dim, n_nodes, words, cores=options.cores)
                training = sync_words / options.speed
                sending = forecast["bytes"] * 8 / (gigabits * 1e9)
                total = training + forecast["merging"] + sending
                speed = n_nodes * words / total
                cells = [f"{forecast['bytes'] / 1e6:.0f}", f"{training:.2f}", f"{forecast['merging']:.2f}"]
                yield [name, gigabits, n_nodes, *cells, f"{sending:.2f}", f"{speed / 1e6:.1f} M"]


_NANOSECONDS = 12.0
"""Of one core for each number of both tables and merge; measured by ``sync``."""


def predicted(counts: Any, config: W2VConfig, dim: int, n_nodes: int, words: float, *, cores: int) -> dict[str, float]:
    """Seconds of merging and bytes that a node gets, after each of ``n_nodes`` nodes trained on ``words`` words."""
    if n_nodes == 1:
        return {"merging": 0.0, "bytes": 0.0}
    steps = expected_steps(counts, config)
    of_node, of_all = (sum(float(-np.expm1(-step * read).sum()) for step in steps) for read in (words, n_nodes * words))
    row = 2 * dim + 4
    numbers = 2 * len(counts) * dim
    merging = _NANOSECONDS * 1e-9 * numbers / cores
    return {"merging": merging, "bytes": (of_node + of_all) * row * (n_nodes - 1) / n_nodes}


_MEASURES = {"quality": _quality, "sync": _sync, "overhead": _overhead, "model": _model}
