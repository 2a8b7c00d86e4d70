"""Other word vectors for an adapted model: does its text help, or do more weights?"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.layout import WORD_VECTORS_FILE
from greenadapt.store.arrays import Array
from greenadapt.store.results import MANIFEST
from greenadapt.vectors.stacked import StackedVectors


def random(shape: tuple[int, ...]) -> Array:
    """Random vectors that ignore the words, of the length that theirs had: (n_words, dim)."""
    rows = np.random.default_rng(0).standard_normal(shape)
    return np.asarray(np.sqrt(shape[1]) * rows / np.linalg.norm(rows, axis=1, keepdims=True))


KINDS: dict[str, Callable[[tuple[int, ...]], Array]] = {"random": random, "constant": np.ones}
"""Name → what makes the vectors; ``constant`` tells only that a word has one."""


def with_vectors_of(kind: str, expanded: Path) -> Path:
    """The folder of the model ``expanded`` with vectors of ``KINDS``; it is made if it is missing."""
    folder = expanded.with_name(f"{expanded.name}-{kind}-vectors")
    if not folder.is_dir():
        work = folder.with_name(f".{folder.name}")
        shutil.rmtree(work, ignore_errors=True)
        left_out = (MANIFEST, WORD_VECTORS_FILE)
        shutil.copytree(expanded, work, ignore=lambda *_: left_out, copy_function=os.link)
        table = StackedVectors.open(expanded / WORD_VECTORS_FILE)
        StackedVectors(table.pieces, KINDS[kind](table.matrix.shape).astype(np.float16)).write(work / WORD_VECTORS_FILE)
        work.rename(folder)
    return folder
