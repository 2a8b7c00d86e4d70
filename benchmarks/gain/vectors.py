"""Other word vectors for an adapted model: does its text help, or do more weights?"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gain.peers import replace_file
from gain.sets import DOMAINS
from greenadapt.checkpoints.layout import WORD_VECTORS_FILE
from greenadapt.store.arrays import Array
from greenadapt.vectors.stacked import StackedVectors


def random(shape: tuple[int, ...]) -> Array:
    """Random vectors that ignore the words, of the length that theirs had: (n_words, dim)."""
    rows = np.random.default_rng(0).standard_normal(shape)
    return np.asarray(np.sqrt(shape[1]) * rows / np.linalg.norm(rows, axis=1, keepdims=True))


MADE: dict[str, Callable[[tuple[int, ...]], Array]] = {"random": random, "constant": np.ones}
"""Name → what makes the vectors; ``constant`` tells only that a word has one."""
OTHER = "other"
"""The vectors of another domain's text, and of its words."""
KINDS = (*MADE, OTHER)


def text_of_another_domain(corpus: Path) -> Path:
    """A text beside ``corpus``."""
    texts = [name for name, _ in DOMAINS.values()]
    return corpus.with_name(texts[(texts.index(corpus.name) + 1) % len(texts)])


def replace_vectors(kind: str, model: Path, source: Path) -> Path:
    """The folder of ``model`` with vectors of ``KINDS`` for the words of ``source``, made if it is missing."""

    def write(work: Path) -> None:
        table = StackedVectors.open(source / WORD_VECTORS_FILE)
        if kind in MADE:
            table = StackedVectors(table.pieces, MADE[kind](table.matrix.shape).astype(np.float16))
        table.write(work / WORD_VECTORS_FILE)

    return replace_file(model, f"{kind}-vectors", WORD_VECTORS_FILE, write)
