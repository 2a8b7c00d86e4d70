"""The program word2vec.c (Mikolov et al., 2013), as one of the sides of ``engines.py``.

The published source has no seed: with one thread all its runs are equal, and what several runs differ in is the order
in which their threads happen to write. Its learning rate falls to a ten-thousandth, not to ``min_alpha``, and a line is
cut after 1,000 words. In one version (0.1c) the last thread trains one epoch only, since it never forgets that it has
met the end of the file: such a run is refused here.
"""

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from machine import peak_memory

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.storage.arrays import Array
from greenadapt.vectors.word_vectors import read_vectors

_FLAGS = ("-Ofast", "-march=native", "-funroll-loops")  # those of its own makefile
_PROGRESS = re.compile(rb"Progress: ([0-9.]+)%")
_STEP = 10_000  # words after which a thread says how far all are


@dataclass(frozen=True)
class Span:
    """The timed span: from the first to the last line of progress that the program prints."""

    share: float
    """Of all words of all epochs."""
    seconds: float
    memory: float
    """MB, once all tables are there."""


def built(path: Path, folder: Path) -> Path:
    """``path``, or the program in ``folder`` where it is C source."""
    if path.suffix != ".c":
        return path.resolve()
    program = folder / "word2vec"
    subprocess.run(["cc", *_FLAGS, "-w", "-o", program, path, "-lm", "-pthread"], check=True)
    return program.resolve()


def write_text(corpus: PreparedCorpus, path: Path) -> None:
    """The corpus with numbers as words, which hold no odd characters and are never too long for the program."""
    names, part = list(map(str, range(len(corpus.words)))), path.with_suffix(".part")
    with open(part, "w", encoding="ascii") as file:
        for begin, end in pairwise(corpus.lines.tolist()):
            file.write(" ".join([names[word] for word in corpus.ids[begin:end].tolist()]) + "\n")
    part.replace(path)


def train(program: Path, text: Path, output: Path, config: W2VConfig) -> Span:
    """Train on ``text`` and write ``output``; neither the counting of words nor the writing of vectors is timed."""
    command = [
        str(program),
        *_arguments(config),
        "-train",
        os.path.relpath(text, output.parent),
        "-output",
        output.name,
    ]
    marks: list[tuple[float, float]] = []
    memory = 0.0
    with subprocess.Popen(command, cwd=output.parent, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            if shares := _PROGRESS.findall(piece):
                marks.append((time.perf_counter(), float(shares[-1]) / 100))
                memory = memory or peak_memory(process.pid)
    if process.returncode or len(marks) < 2:
        sys.exit(f"{program} ended with code {process.returncode} and reported progress {len(marks)} times, need two")
    if not memory:
        sys.exit(f"{program} ended before its memory was read; give a longer text")
    (begin, first), (end, last) = marks[0], marks[-1]
    return Span(last - first, end - begin, memory)


def check_complete(span: Span, words: int, config: W2VConfig) -> None:
    """Exit if the program did not train on nearly all of ``words``, the words of all epochs, or if that is unknown."""
    # A thread that stops after one epoch of several leaves out twice this share.
    limit = (1 - 1 / config.epochs) / config.workers / 2 if config.epochs > 1 else 1.0
    untold = 2 * config.workers * _STEP / words
    if untold > limit:
        sys.exit(f"{words:,} words are too few to tell whether {config.workers} threads of word2vec.c trained on all")
    if span.share < 1 - min(0.05 + untold, limit):
        sys.exit(
            f"word2vec.c trained on {span.share:.0%} of the words: its last thread stops after one epoch where "
            "eof is not set back to 0 with word_count; give a source that does"
        )


def _arguments(config: W2VConfig) -> list[str]:
    values = {
        "cbow": 1, "hs": 0, "binary": 1, "debug": 2, "size": config.dim, "window": config.window,
        "negative": config.negative, "sample": config.sample, "alpha": config.alpha, "min-count": config.min_count,
        "iter": config.epochs, "threads": config.workers,
    }  # fmt: skip
    return [part for name, value in values.items() for part in (f"-{name}", str(value))]


def read_matrix(path: Path, n_words: int) -> Array:
    """The vectors of words 0 to ``n_words`` - 1, ``(n_words, dim)``."""
    vectors = read_vectors(path)
    return vectors.matrix[[vectors.index[str(word)] for word in range(n_words)]]
