"""New rows by other programs, or at random: the same words, other vectors."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.checkpoints.writer import write_expanded
from greenadapt.config import ExpandConfig
from greenadapt.corpus.opening import open_binary
from greenadapt.stages.session import OpenedBase
from greenadapt.store.arrays import Array
from greenadapt.store.results import MANIFEST
from greenadapt.vectors.alignment import Alignment, overlap
from greenadapt.vectors.rows import Expansion, wordpiece_norm
from greenadapt.vectors.word_vectors import WordVectors

_OMP_K, _OMP_BATCH = 64, 512  # tokensurgeon's defaults
_RANDOM_SEED = 1


@dataclass(frozen=True)
class Adapted:
    """A model with rows for new words, and what they were made from."""

    base: str
    corpus: Path
    vectors: Path
    aligned: Path
    config: ExpandConfig
    expanded: Path
    workers: int = 1


def omp(model: Adapted) -> Array:
    """Orthogonal matching pursuit (mergekit's tokensurgeon) with the word vectors as the donor model: (n_new, dim)."""
    import torch
    from mergekit.tokensurgeon.omp import batch_omp

    base, vectors = OpenedBase(find_model(model.base)), WordVectors.load(model.vectors)
    expansion = Expansion(base.checkpoint, base.vocabulary, vectors, Alignment.load(model.aligned), model.config)
    _, known_rows, ids = overlap(vectors, base.vocabulary)
    donor, rows = (
        torch.from_numpy(np.array(matrix, np.float32))
        for matrix in (vectors.matrix[known_rows], base.checkpoint.embedding()[ids])
    )
    word_vectors = np.array(vectors.matrix[expansion.new_word_indices[expansion.entries.word]], np.float32)
    combined = []
    for targets in torch.from_numpy(word_vectors).split(_OMP_BATCH):
        chosen, weights = batch_omp(targets, donor, min(_OMP_K, *donor.shape))
        combined.append(torch.bmm(weights.unsqueeze(1), rows[chosen]).squeeze(1))
    return np.asarray(torch.cat(combined).numpy(), np.float32)


def focus(model: Adapted) -> Array:
    """FOCUS (arXiv 2305.14481), the released code with its own fastText vectors and defaults: (n_new, dim)."""
    import torch
    from deepfocus import FOCUS
    from transformers import AutoTokenizer

    base = Checkpoint(find_model(model.base).folder)
    text = model.expanded.with_name("text.txt")
    if not text.is_file():
        with open_binary(str(model.corpus)) as source, open(text, "wb") as target:
            shutil.copyfileobj(source, target)
    tokenizers = [AutoTokenizer.from_pretrained(folder) for folder in (model.expanded, base.folder)]
    rows = FOCUS(
        *tokenizers,
        torch.from_numpy(np.array(base.embedding(), np.float32)),
        target_training_data_path=str(text),
        processes=model.workers,
    )
    n_new = Checkpoint(model.expanded).n_rows - base.n_rows
    return np.asarray(rows[-n_new:].numpy(), np.float32)


def random(model: Adapted) -> Array:
    """Random rows that ignore the words, as long as the base model's rows: (n_new, dim)."""
    base = OpenedBase(find_model(model.base))
    table, vocabulary = base.checkpoint.embedding(), base.vocabulary
    n_new = Checkpoint(model.expanded).n_rows - base.checkpoint.n_rows
    rows = np.random.default_rng(_RANDOM_SEED).normal(size=(n_new, base.checkpoint.dim))
    norm = wordpiece_norm(table, vocabulary.size, vocabulary.special_ids)
    return np.asarray(norm * rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


PEERS: dict[str, tuple[str, Callable[[Adapted], Array]]] = {
    "omp": ("mergekit", omp),
    "focus": ("deepfocus", focus),
    "random": ("numpy", random),
}
"""Name → the package it needs, and what makes the rows."""


def missing(peer: str) -> str:
    """The package that ``peer`` needs, if it is not installed."""
    package, _ = PEERS[peer]
    return "" if find_spec(package) else package


def with_rows_of(peer: str, model: Adapted) -> Path:
    """The folder of ``model.expanded`` with the rows of ``peer``; it is made if it is missing."""

    def write(work: Path) -> None:
        _, rows_of = PEERS[peer]
        write_expanded(Checkpoint(find_model(model.base).folder), rows_of(model), work)

    return replace_file(model.expanded, peer, "model.safetensors", write)


def replace_file(model: Path, name: str, file: str, write: Callable[[Path], None]) -> Path:
    """A copy of ``model`` beside it, its name ending in ``name``, with the ``file`` of ``write``; made if missing."""
    folder = model.with_name(f"{model.name}-{name}")
    if not folder.is_dir():
        work = folder.with_name(f".{folder.name}")
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(model, work, ignore=lambda *_: [MANIFEST, file])
        write(work)
        work.rename(folder)
    return folder
