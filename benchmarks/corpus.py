"""Preparing a corpus beside the plain way: time, and peak memory summed over processes.

    python benchmarks/corpus.py TEXT[.gz] [--model minilm] [--workers 2] [--copies 10]

The plain way runs the same normalizer and pre-tokenizer over each line in a Python loop and keeps lists of words. The
copies differ from each other in one word out of fifty, which gives many distinct words. Linux only (reads /proc).
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plain_words import plain

from greenadapt.checkpoints.source import find_model
from greenadapt.config import CorpusConfig
from greenadapt.corpus.prepared import prepare_corpus
from greenadapt.progress import Silent
from greenadapt.tokenization.vocabulary import load_tokenizer


@dataclass(frozen=True)
class Paragraph:
    """A document of one line."""

    lines: tuple[str, ...]


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, gzipped or not, without their line ends."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def copies(path: Path, n_copies: int) -> Iterator[Paragraph]:
    """Documents of ``path``, as they are or (``n_copies`` > 1) several times with every fiftieth word a new one."""
    if n_copies == 1:
        yield from (Paragraph((line,)) for line in read_lines(path))
        return
    n_words = 0
    for _ in range(n_copies):
        for line in read_lines(path):
            words = line.split(" ")
            for i in range(-n_words % 50, len(words), 50):
                words[i] = f"zq{n_words + i:x}"
            n_words += len(words)
            yield Paragraph((" ".join(words),))


def run_case(case: str, arguments: argparse.Namespace) -> None:
    """Run one case in this process, and print its figures as JSON."""
    model = find_model(arguments.model).folder
    begin = time.perf_counter()
    if case == "plain":
        tokenizer = load_tokenizer(model)
        lines = [[sys.intern(word) for word in words] for words in plain(tokenizer, read_lines(arguments.text))]
        counts = Counter(word for line in lines for word in line)
        tokens, words = sum(counts.values()), len(counts)
    else:
        documents = copies(arguments.text, arguments.copies if case == "copies" else 1)
        config = CorpusConfig(keep_duplicates=True)
        with tempfile.TemporaryDirectory() as folder:
            result = prepare_corpus(
                documents, model, Path(folder), config, workers=arguments.workers, max_memory=10**9, progress=Silent()
            )
        tokens, words = result["tokens"], result["words"]
    print(json.dumps({"tokens": tokens, "words": words, "seconds": time.perf_counter() - begin}))


def measure(case: str) -> dict[str, float]:
    """Run ``case`` in a process of its own, and add the peak memory of it and its children in bytes."""
    process = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--case", case], stdout=subprocess.PIPE)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, sum(map(proportional_memory, family(process.pid))))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.stdout is not None
    output = process.stdout.read()
    watcher.join()
    if process.returncode:
        sys.exit(f"{case} failed")
    return {**json.loads(output), "peak": peak}


def family(pid: int) -> list[int]:
    """``pid`` and its descendants."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(descendant for child in children for descendant in family(child))]


def proportional_memory(pid: int) -> int:
    """Memory of a process in bytes, in which shared pages count in part (PSS)."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--copies", type=int, default=10)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        run_case(arguments.case, arguments)
        return
    print(f"{'':24}{'words':>12}{'distinct':>12}{'seconds':>10}{'words/s':>12}{'peak MB':>10}")
    results = {}
    names = {"plain": "plain loop", "once": "greenadapt", "copies": f"greenadapt, {arguments.copies} copies"}
    for case, name in names.items():
        results[case] = result = measure(case)
        rate = result["tokens"] / result["seconds"]
        print(
            f"{name:24}{result['tokens']:12.0f}{result['words']:12.0f}{result['seconds']:10.2f}{rate:12.0f}"
            f"{result['peak'] / 1e6:10.0f}",
            flush=True,
        )
    once, many = results["once"], results["copies"]
    print(f"time of greenadapt / plain loop: {once['seconds'] / results['plain']['seconds']:.2f}")
    if many["words"] > once["words"]:
        per_word = (many["peak"] - once["peak"]) / (many["words"] - once["words"])
        print(f"bytes a distinct word: {per_word:.0f}")


if __name__ == "__main__":
    main()
