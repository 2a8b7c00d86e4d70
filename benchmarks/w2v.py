"""From raw text to word vectors: greenadapt beside the plain script that one would write with gensim.

    python benchmarks/w2v.py --corpus biomedical.txt.gz --dim 384 --epochs 5 --workers 2

Each side runs in its own process, one after the other, and makes everything itself, from the compressed text on. The
plain script splits each line with the same normalizer and pre-tokenizer into a list in memory and trains gensim on it.
greenadapt trains with its own engine, or with ``--engine gensim`` with gensim's kernel; where the first has never run,
its compilation is timed, too. ``engines.py`` compares the training alone, in turns. Linux only (reads /proc).
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from machine import peak_memory
from plain_words import plain
from smart_open import open as smart_open

from greenadapt.checkpoints.source import find_model
from greenadapt.config import CorpusConfig, W2VConfig
from greenadapt.progress import Silent
from greenadapt.tokenization.vocabulary import load_tokenizer

PROBES = "tachycardia,insulin,mrna"
SIDES = ("greenadapt", "plain")


def main() -> None:
    """Run both sides and print one table."""
    options = _options()
    if options.side:
        print(json.dumps({"greenadapt": greenadapt_side, "plain": plain_side}[options.side](options)))
        return
    with TemporaryDirectory() as folder:
        if options.lines:
            options.corpus = _cut(options.corpus, options.lines, Path(folder))
        runs = [{side: _run(side, options) for side in SIDES} for _ in range(options.repeats)]
    ratios = [_together(run["greenadapt"]) / _together(run["plain"]) for run in runs]
    # Each side by its own fastest run: another user of the machine can only slow a run down.
    _print_table({side: min((run[side] for run in runs), key=_together) for side in SIDES})
    if len(runs) > 1:
        print(f"ratio of each pair of runs: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


def greenadapt_side(options: argparse.Namespace) -> dict[str, Any]:
    """Run ``prepare_corpus``, then ``train``."""
    begin = time.perf_counter()
    from greenadapt.corpus.prepared import PreparedCorpus, prepare_corpus
    from greenadapt.corpus.readers import open_corpus
    from greenadapt.corpus.recipes import find_recipe
    from greenadapt.vectors.cbow import train

    config = W2VConfig(dim=options.dim, epochs=options.epochs, workers=options.workers, engine=options.engine)
    with TemporaryDirectory() as folder:
        reading = open_corpus(find_recipe(str(options.corpus)), Path(folder))
        prepare_corpus(
            reading.documents(),
            find_model(options.model).folder,
            Path(folder),
            CorpusConfig(keep_duplicates=True),
            workers=options.workers,
            max_memory=2 << 30,
            progress=Silent(),
        )
        split = time.perf_counter()
        corpus = PreparedCorpus.open(Path(folder))
        vectors = train(corpus, config, Path(folder) / "w2v", progress=Silent(), max_memory=32 << 30)
        end = time.perf_counter()
        return _result(split - begin, end - split, int(corpus.counts.sum()), vectors, options)


def plain_side(options: argparse.Namespace) -> dict[str, Any]:
    """Read the words into a list, then train gensim on it."""
    begin = time.perf_counter()
    from gensim.models import Word2Vec

    from greenadapt.vectors.word_vectors import WordVectors

    tokenizer = load_tokenizer(find_model(options.model).folder)
    with smart_open(str(options.corpus), "rt", encoding="utf-8") as file:
        sentences = list(plain(tokenizer, file))
    split = time.perf_counter()
    model = Word2Vec(sentences, vector_size=options.dim, epochs=options.epochs, workers=options.workers)
    end = time.perf_counter()
    vectors = WordVectors(model.wv.index_to_key, np.ones(len(model.wv), np.int64), model.wv.vectors)
    return _result(split - begin, end - split, model.corpus_total_words, vectors, options)


def _result(split: float, train: float, tokens: int, vectors: Any, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "split": split,
        "train": train,
        "tokens": tokens,
        "trained": tokens * options.epochs / train,
        "words": len(vectors.words),
        "cpu": _cpu_seconds(),
        "memory": peak_memory(),
        "child": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "neighbours": {word: neighbours(vectors, word) for word in options.probes.split(",")},
    }


def _together(result: dict[str, Any]) -> float:
    return float(result["split"] + result["train"])


def _cpu_seconds() -> float:
    """CPU seconds of this process and its ended children; unlike wall time, they do not depend on other programs."""
    usages = [resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def neighbours(vectors: Any, word: str) -> list[str]:
    """The ten nearest words by cosine."""
    if word not in vectors.index:
        return []
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    nearest = np.argsort(-(unit @ unit[vectors.index[word]]))
    return [vectors.words[row] for row in nearest[1:11]]


def _run(side: str, options: argparse.Namespace) -> dict[str, Any]:
    values = {
        name: getattr(options, name) for name in ("corpus", "model", "dim", "epochs", "workers", "engine", "probes")
    }
    arguments = [f"--{name}={value}" for name, value in values.items()]
    command = [sys.executable, __file__, *arguments, f"--side={side}"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def _cut(corpus: Path, lines: int, folder: Path) -> Path:
    path = folder / "cut.txt"
    with smart_open(str(corpus), "rb") as file, open(path, "wb") as cut:
        cut.writelines(islice(file, lines))
    return path


def _print_table(results: dict[str, dict[str, Any]]) -> None:
    rows = [
        ("words of text", "{tokens:,}"),
        ("words with a vector", "{words:,}"),
        ("text to words, s", "{split:.1f}"),
        ("words to vectors, s", "{train:.1f}"),
        ("together, s", "{both:.1f}"),
        ("CPU seconds, all processes", "{cpu:.1f}"),
        ("words/s while training", "{trained:,.0f}"),
        ("peak memory, MB", "{memory:,.0f}"),
        ("of the largest child process, MB", "{child:,.0f}"),
    ]
    for result in results.values():
        result["both"] = _together(result)
    print(f"{'':34}" + "".join(f"{side:>14}" for side in results))
    for label, form in rows:
        print(f"{label:34}" + "".join(f"{form.format(**result):>14}" for result in results.values()))
    for label, key in (("raw text to vectors", "both"), ("CPU", "cpu")):
        print(f"greenadapt/plain, {label}: {results['greenadapt'][key] / results['plain'][key]:.2f}")
    for word in results["plain"]["neighbours"]:
        for side, result in results.items():
            print(f"{word} ({side}): {', '.join(result['neighbours'][word])}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="a text file, one paragraph a line, gz too")
    parser.add_argument("--model", default="minilm", help="whose tokenizer splits the text")
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", default="fast", choices=["fast", "gensim"], help="of greenadapt")
    parser.add_argument("--lines", type=int, default=0, help="take only the first lines, for a quick look")
    parser.add_argument("--repeats", type=int, default=1, help="pairs of runs, one after the other")
    parser.add_argument("--probes", default=PROBES, help="words whose neighbours are shown, joined by commas")
    parser.add_argument("--side", choices=["greenadapt", "plain"], help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
