"""Splitting text into words on one core: greenadapt's splitter beside the plain loop, with the same words.

    python benchmarks/splitting.py TEXT[.gz] [--model minilm] [--lines 0]

The plain loop calls the tokenizer's normalizer and pre-tokenizer line by line. Both take the same batches of about a
megabyte in turns, read before; after each the words of every line are compared, and one that differs ends the run.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from corpus import Paragraph, read_lines
from machine import machine_line
from plain_words import plain

from greenadapt.checkpoints.source import find_model
from greenadapt.corpus.splitting import BatchSplitter, DocumentLog, SplitBatch, TextBatch, make_batches
from greenadapt.tokenization.vocabulary import WordSplitter, load_tokenizer

PLAIN, OURS = "plain loop", "greenadapt"


def main() -> None:
    """Print the words a second of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default="minilm", help="one with a WordPiece tokenizer, which splits")
    parser.add_argument("--lines", type=int, default=0, help="take only the first lines, for a quick look")
    options = parser.parse_args()
    tokenizer = load_tokenizer(find_model(options.model).folder)
    splitter = WordSplitter(tokenizer)
    lines = islice(read_lines(options.text), options.lines or None)
    batches = make_batches((Paragraph((line,)) for line in lines), DocumentLog(), cut_lines=splitter.chunkwise)
    words, seconds = timed(batches, lambda lines: list(plain(tokenizer, lines)), BatchSplitter(splitter))
    print("| | words/s, one core | to the plain loop |\n|---|---|---|")
    for side, taken in seconds.items():
        print(f"| {side} | {words / taken:,.0f} | {seconds[PLAIN] / taken:.2f} |")
    print(f"\n{words:,} words, the same by both; {machine_line(['tokenizers'])}")


def timed(
    batches: Iterator[TextBatch], loop: Callable[[list[str]], list[list[str]]], ours: Callable[[TextBatch], SplitBatch]
) -> tuple[int, dict[str, float]]:
    """The number of words, and the seconds of both sides, which take turns to be first."""
    words, seconds = 0, {PLAIN: 0.0, OURS: 0.0}
    for number, batch in enumerate(batches):
        lines = batch.text.decode().split("\n")
        results: dict[str, Any] = {}
        for side in (PLAIN, OURS) if number % 2 else (OURS, PLAIN):
            begin = time.perf_counter()
            results[side] = loop(lines) if side == PLAIN else ours(batch)
            seconds[side] += time.perf_counter() - begin
        if results[PLAIN] != words_of(results[OURS]):
            sys.exit(f"batch {number} was split into other words")
        words += len(results[OURS].ids)
    return words, seconds


def words_of(split: SplitBatch) -> list[list[str]]:
    """The words of each line."""
    words = iter([split.words[row] for row in split.ids.tolist()])
    return [list(islice(words, length)) for length in split.lengths.tolist()]


if __name__ == "__main__":
    main()
