"""Word vectors by either engine, in turns: words a second, memory, and how good the vectors are.

    python benchmarks/engines.py --corpus biomedical.txt.gz --dims 384 768 --workers 1 2 --repeats 5 [--seeds 3]
    python benchmarks/engines.py --zipf 1000000 --tokens 10e6 --epochs 1 --dims 768

The peer is gensim's compiled kernel in file mode, driven by greenadapt's own ``gensim`` engine. Each run has a process
of its own; the time is that of all epochs with their checkpoints, the code being compiled. Quality is that of the map
(``greenadapt align``): of a seeded tenth of the words that the model has, too, how many find their own row among all of
the model's rows, by cosine, under a map that is fitted on the others. The first ``--seeds`` of the repeats measure it,
each vectors of another seed, by three tenths each. ``--zipf`` trains on random text instead: words drawn by 1 / rank.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from greenadapt.base_vocabulary import BaseVocabulary
from greenadapt.checkpoint import Checkpoint
from greenadapt.config import AlignConfig, CorpusConfig, W2VConfig
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.corpus.splitter import load_tokenizer
from greenadapt.corpus.words import PreparedCorpus, prepare_corpus
from greenadapt.diagnostics import diagnose
from greenadapt.model import find_model
from greenadapt.pipeline.align import overlap
from greenadapt.progress import Silent
from greenadapt.vectors import WordVectors
from greenadapt.w2v import train

ENGINES = ("gensim", "fast")
FIGURES = ("precision_at_1", "precision_at_10", "mrr")
_LINE = 25  # words of random text


@dataclass(frozen=True)
class RandomText:
    """What ``train`` needs of a corpus, of words drawn by 1 / rank."""

    words: list[str]
    counts: Any
    ids: Any
    lines: Any

    @classmethod
    def drawn(cls, n_words: int, n_tokens: int) -> "RandomText":
        """Words that were not drawn count as one."""
        shares = np.cumsum(1 / np.arange(1, n_words + 1))
        ids = np.searchsorted(shares / shares[-1], np.random.default_rng(0).random(n_tokens))
        counts = np.maximum(np.bincount(ids, minlength=n_words), 1)
        order = np.argsort(-counts, kind="stable")
        rank = np.empty(n_words, np.int32)
        rank[order] = np.arange(n_words)
        lines = np.append(np.arange(0, n_tokens, _LINE), n_tokens)
        return cls([str(word) for word in range(n_words)], counts[order], rank[ids], lines)


def main() -> None:
    """Run the engines in turns and print a table."""
    options = _options()
    if options.run is not None:
        print(json.dumps(_one(json.loads(options.run))))
        return
    with TemporaryDirectory() as folder:
        if options.zipf is None:
            _prepare(options, Path(folder))
        print("| dim | workers | engine | words/s, median | to gensim (each pair) | MB | P@1 | P@10 | MRR |")
        print("|---|---|---|---|---|---|---|---|---|")
        for dim, workers in product(options.dims, options.workers):
            runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
            for repeat in range(options.repeats):
                for engine in ENGINES if repeat % 2 else ENGINES[::-1]:
                    runs[engine].append(_start(options, folder, engine, dim, workers, repeat))
            for engine in ENGINES:
                _tell(engine, runs, dim, workers)


def _prepare(options: argparse.Namespace, folder: Path) -> None:
    reading = open_corpus(find_recipe(str(options.corpus)), folder)
    model, config = find_model(options.model).folder, CorpusConfig()
    prepare_corpus(reading.documents(), model, folder, config, workers=2, max_memory=2 << 30, progress=Silent())


def _start(
    options: argparse.Namespace, folder: str, engine: str, dim: int, workers: int, repeat: int
) -> dict[str, Any]:
    asked = {"engine": engine, "dim": dim, "workers": workers, "seed": repeat + 1, "epochs": options.epochs}
    asked |= {"folder": folder, "zipf": options.zipf, "tokens": int(options.tokens), "model": options.model}
    asked["is_measured"] = options.zipf is None and repeat < options.seeds
    command = [sys.executable, __file__, "--run", json.dumps(asked)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def _one(asked: dict[str, Any]) -> dict[str, Any]:
    """One run, in a process of its own."""
    options = {name: asked[name] for name in ("engine", "dim", "workers", "seed", "epochs")}
    is_random = asked["zipf"] is not None
    config = W2VConfig(**options, min_count=1 if is_random else W2VConfig.min_count)
    warm_up = W2VConfig(**options | {"epochs": 1}, min_count=1)  # compiles the code, or finds it compiled
    with TemporaryDirectory() as work:
        _trained(RandomText.drawn(10, 1000), warm_up, Path(work) / "warm-up")
        if is_random:
            corpus: Any = RandomText.drawn(asked["zipf"], asked["tokens"])
        else:
            corpus = PreparedCorpus.open(Path(asked["folder"]))
        begin = time.perf_counter()
        vectors = _trained(corpus, config, Path(work) / "run")
        seconds = time.perf_counter() - begin
    result = {"words": int(vectors.counts.sum()) * config.epochs / seconds}
    result["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result | (quality(vectors, asked["model"]) if asked["is_measured"] else {})


def _trained(corpus: Any, config: W2VConfig, work: Path) -> WordVectors:
    return train(corpus, config, work, progress=Silent(), max_memory=1 << 40)


def quality(vectors: WordVectors, model: str) -> dict[str, float]:
    """``FIGURES`` of the map from ``vectors`` to the model's rows, means over three held-out tenths."""
    folder = find_model(model).folder
    vocabulary, base = BaseVocabulary(load_tokenizer(folder)), Checkpoint.open(folder).embedding()
    _, rows, ids = overlap(vectors, vocabulary)
    pairs, figures = np.asarray(vectors.matrix[rows], np.float32), []
    for seed in (1, 2, 3):
        found = diagnose(pairs, base[: vocabulary.size], ids, AlignConfig(seed=seed), vocabulary.special_ids).figures
        assert found is not None
        figures.append([getattr(found.base_rows["cosine"], name) for name in FIGURES])
    return dict(zip(FIGURES, np.mean(figures, axis=0).tolist(), strict=True))


def _tell(engine: str, runs: dict[str, list[dict[str, Any]]], dim: int, workers: int) -> None:
    words = [run["words"] for run in runs[engine]]
    pairs = [one["words"] / other["words"] for one, other in zip(runs[engine], runs["gensim"], strict=True)]
    to_gensim = f"{statistics.median(words) / statistics.median(run['words'] for run in runs['gensim']):.2f}"
    to_gensim += f" ({', '.join(f'{pair:.2f}' for pair in pairs)})"
    cells = [f"{statistics.median(words):,.0f}", to_gensim, f"{max(run['memory'] for run in runs[engine]):,.0f}"]
    for name in FIGURES:
        found = [run[name] for run in runs[engine] if name in run]
        spread = f" ± {statistics.stdev(found):.4f}" if len(found) > 1 else ""
        cells.append(f"{statistics.mean(found):.4f}{spread}" if found else "")
    print(f"| {dim} | {workers} | {engine} | {' | '.join(cells)} |", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="a text file, one paragraph a line, gz too")
    parser.add_argument("--zipf", type=int, help="words of random text instead")
    parser.add_argument("--tokens", type=float, default=10e6, help="length of random text")
    parser.add_argument("--model", default="minilm", help="whose tokenizer splits the text, and whose rows are found")
    parser.add_argument("--dims", type=int, nargs="+", default=[384])
    parser.add_argument("--workers", type=int, nargs="+", default=[2])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3, help="of these repeats, how many measure quality")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if (options.corpus is None) == (options.zipf is None) and options.run is None:
        parser.error("give --corpus or --zipf")
    return options


if __name__ == "__main__":
    main()
