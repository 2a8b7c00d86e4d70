"""How near the fast engine is to what the machine can do: bytes and operations of a word beside measured rates.

    python benchmarks/limits.py --words 30000 1000000 --dim 768 --workers 1 2 --work DIR

The text is random, words drawn by 1 / rank. Beside the engine's words a second stand the arithmetic and the traffic of
the tables that they mean, by the counts of ``operations`` and ``rows``, and what the machine does of either with as
many threads and nothing else: a product of large float32 matrices, and a copy of memory far larger than any cache.
The traffic is a bound, not measured: with words drawn by 1 / rank most rows are in a cache already.
``docs/word-vectors.md`` says what follows from it.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # the threads are started here

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import engine_texts
import numpy as np
from engine_sides import Job, trained
from machine import machine_line

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.vectors.engines import keep_thresholds
from greenadapt.vectors.engines.chunks import CHUNK, GROUP, NEGATIVES

_COPIED = 256 << 20  # bytes a thread
_SIDE = 2048  # of a matrix
_REPEATS = 5


def input_rows(window: int) -> float:
    """Input rows that a chunk reads, and writes, for each of its positions, at most."""
    return (CHUNK + 2 * window) / CHUNK


def operations(dim: int, window: int) -> float:
    """Floating-point operations of a position.

    For each of ``dim`` numbers: h (3) and its score (2), the own word's part of the gradient (1) and step (2); of each
    negative a score (2), the part of the gradient (2) and its own step (2); the gradient where its window begins and
    ends (4); of each input row the running sum (1), the word's own gradient taken off (2) and the change added (1).
    Exponentials and random draws are not counted.
    """
    return dim * (4 * input_rows(window) + 12 + 6 * NEGATIVES)


def rows(window: int) -> float:
    """Rows of the tables that are read or written for a position, at most.

    Each is read once and written once: those around, the own word's, and its share of the group's negatives. What
    stays in a cache within a chunk counts once; between chunks no cache is counted on.
    """
    return 2 * (input_rows(window) + 1 + NEGATIVES / GROUP)


def kept_share(corpus: PreparedCorpus, config: W2VConfig) -> float:
    """The share of words that subsampling leaves."""
    counts = np.asarray(corpus.counts, np.float64)
    shares = keep_thresholds(corpus.counts, config.sample) / 2**32
    return float((counts * shares).sum() / counts.sum())


def copy_rate(workers: int) -> float:
    """Bytes a second, read and written, of a copy that no cache holds."""
    arrays = [(np.zeros(_COPIED, np.uint8), np.ones(_COPIED, np.uint8)) for _ in range(workers)]
    return 2 * workers * _COPIED / _fastest(workers, lambda thread: np.copyto(*arrays[thread]))


def product_rate(workers: int) -> float:
    """Floating-point operations a second of a product of float32 matrices."""
    a = np.ones((_SIDE, _SIDE), np.float32)
    return 2 * workers * _SIDE**3 / _fastest(workers, lambda thread: a @ a)


def _fastest(workers: int, work: Callable[[int], object]) -> float:
    """The fewest seconds in which ``workers`` threads do ``work(thread)`` each."""
    seconds = []
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(_REPEATS):
            begin = time.perf_counter()
            list(pool.map(work, range(workers)))
            seconds.append(time.perf_counter() - begin)
    return min(seconds)


def main() -> None:
    """Print a table."""
    options = _options()
    print("| words | workers | words/s | positions/word | Gflop/s | of a product | GB/s of rows, at most | of a copy |")
    print("|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as temporary:
        for n_words in options.words:
            text = {"zipf": n_words, "tokens": int(options.tokens)}
            corpus = PreparedCorpus.open(engine_texts.made(text, options.work or Path(temporary), is_written=False))
            for workers in options.workers:
                _tell(n_words, corpus, W2VConfig(options.dim, workers=workers, epochs=1, min_count=1, engine="fast"))
    print(f"\n{machine_line(['numpy', 'numba'])}")


def _tell(n_words: int, corpus: PreparedCorpus, config: W2VConfig) -> None:
    assert config.dim is not None
    with TemporaryDirectory() as folder:
        words = max(trained(Job("fast", corpus, config, Path(folder))).words for _ in range(2))
    share = kept_share(corpus, config)
    flops = words * share * operations(config.dim, config.window)
    moved = words * share * rows(config.window) * 4 * config.dim
    cells = [f"{n_words:,}", f"{config.workers}", f"{words:,.0f}", f"{share:.2f}"]
    for value, rate in ((flops, product_rate(config.workers)), (moved, copy_rate(config.workers))):
        cells += [f"{value / 1e9:.1f}", f"{value / rate:.2f} of {rate / 1e9:.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, nargs="+", default=[30_000, 1_000_000], help="vocabularies, one by one")
    parser.add_argument("--tokens", type=float, default=5e6, help="length of the text")
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--work", type=Path, help="keeps the texts")
    return parser.parse_args()


if __name__ == "__main__":
    main()
