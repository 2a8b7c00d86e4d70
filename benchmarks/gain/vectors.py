"""Other word vectors for an adapted model: does its text help, or do more weights?"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gain.sets import DOMAINS
from greenadapt.checkpoints.layout import WORD_VECTORS_FILE
from greenadapt.store.arrays import Array
from greenadapt.store.results import MANIFEST
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


def other_text(corpus: Path) -> Path:
    """The text of another domain, beside ``corpus``."""
    texts = [name for name, _ in DOMAINS.values()]
    return corpus.with_name(texts[(texts.index(corpus.name) + 1) % len(texts)])


def with_vectors_of(kind: str, expanded: Path, other: Path) -> Path:
    """The model ``expanded`` with vectors of ``KINDS``, made if it is missing; ``other`` has those of ``OTHER``."""
    folder = expanded.with_name(f"{expanded.name}-{kind}-vectors")
    if not folder.is_dir():
        work = folder.with_name(f".{folder.name}")
        shutil.rmtree(work, ignore_errors=True)
        left_out = (MANIFEST, WORD_VECTORS_FILE)
        shutil.copytree(expanded, work, ignore=lambda *_: left_out, copy_function=os.link)
        table = StackedVectors.open((other if kind == OTHER else expanded) / WORD_VECTORS_FILE)
        if kind in MADE:
            table = StackedVectors(table.pieces, MADE[kind](table.matrix.shape).astype(np.float16))
        table.write(work / WORD_VECTORS_FILE)
        work.rename(folder)
    return folder
