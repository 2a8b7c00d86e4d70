"""Train CBOW word vectors on a prepared corpus: vocabulary, epochs, checkpoints."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from greenadapt.config import W2VConfig
from greenadapt.errors import InputError, MissingError, ResourceError, first_line
from greenadapt.progress import Progress, handle_signals
from greenadapt.store.arrays import Array, ArrayFile, write_arrays
from greenadapt.store.files import replacing
from greenadapt.vectors.engine.stream import Stream, Weights, aligned_zeros, padded_width
from greenadapt.vectors.word_vectors import WordVectors

if TYPE_CHECKING:
    from greenadapt.cluster import Cluster
    from greenadapt.corpus.prepared import PreparedCorpus
    from greenadapt.vectors.engine.local import LocalEngine
    from greenadapt.vectors.on_cluster import ClusterEngine


# Measured, in addition to the two tables:
_FIXED_BYTES = 290 << 20  # interpreter, packages and the compiler
_BYTES_A_WORD = 110  # per word of the corpus, with its count
_BYTES_A_TRAINED_WORD = 330
CHECKPOINT_SECONDS = 10
"""Minimum time between checkpoints: saving the tables can take as long as a short epoch."""


def train(
    corpus: "PreparedCorpus",
    config: W2VConfig,
    work: Path,
    *,
    progress: Progress,
    max_memory: int,
    cluster: "Cluster | None" = None,
) -> WordVectors:
    """Train vectors of width ``config.dim`` on ``corpus``; words are ordered by frequency, as in the corpus.

    ``config.dim`` must be a number. On a ``cluster`` all nodes train (``on_cluster``), which must see the corpus and
    ``work`` under the same paths.

    ``work`` holds a checkpoint of both tables, from which an interrupted run resumes. A checkpoint is saved after an
    epoch if ``CHECKPOINT_SECONDS`` have passed, and when training is stopped. With one worker the vectors depend only
    on corpus, configuration and the compiled code, even after an interruption; several workers share the tables without
    locks, so that runs differ. The caller removes ``work``.

    Raises ``InputError`` if no word is frequent enough or training diverges, ``ResourceError`` if ``max_memory`` bytes
    are too few, ``MissingError`` if the compiled code does not work.
    """
    assert config.dim is not None
    n_words = vocabulary_size(corpus.counts, config)
    _require_memory(n_words, len(corpus.counts), config.dim, max_memory)
    words, counts = list(corpus.words[:n_words]), np.array(corpus.counts[:n_words])
    work.mkdir(parents=True, exist_ok=True)
    stream = Stream(corpus.ids, corpus.lines, counts)
    checkpoint = _Checkpoint(work, progress)
    state = checkpoint.load((n_words, config.dim)) or _State(initial_weights(n_words, config))
    if state.epochs < config.epochs and stream.total:
        if cluster is None:
            _train_epochs(load_engine()(stream, config), stream.total, state, config, checkpoint)
        else:
            from greenadapt.vectors.on_cluster import ClusterEngine

            with closing(ClusterEngine(cluster, corpus.stream_file, stream, config, progress)) as engine:
                _train_epochs(engine, stream.total, state, config, checkpoint)
    return WordVectors(words, counts, state.weights.input)


def load_engine() -> "type[LocalEngine]":
    """Import the compiled code; raises ``MissingError`` if it does not work with the installed numba."""
    try:
        from greenadapt.vectors.engine.local import LocalEngine
    except OSError:
        raise
    except Exception as error:  # the internals of another release of numba can raise any error
        raise MissingError(
            f"word vectors cannot be trained with the installed numba: {first_line(error)}",
            "install another release of numba, or set NUMBA_CACHE_DIR to a folder where it can write",
        ) from error
    return LocalEngine


def _train_epochs(
    engine: "LocalEngine | ClusterEngine", words: int, state: "_State", config: W2VConfig, checkpoint: "_Checkpoint"
) -> None:
    with (
        checkpoint.progress.bar("training", words * (config.epochs - state.epochs), "words") as bar,
        handle_signals() as stop,
    ):
        part = state.part
        for epoch in range(state.epochs, config.epochs):

            def advance(words: int, rate: float, label: str = f"{epoch + 1}/{config.epochs}") -> None:
                bar.advance(words, epoch=label, lr=f"{rate:.4f}")

            parts = engine.parts[part:]
            part += engine.train(parts, state.weights, epoch, advance, stop=lambda: stop.is_requested)
            part %= len(engine.parts)
            if stop.is_requested or monotonic() - checkpoint.saved >= CHECKPOINT_SECONDS:
                checkpoint.save(_State(state.weights, epoch if part else epoch + 1, part))
            stop.raise_if_requested()


def vocabulary_size(counts: Array, config: W2VConfig) -> int:
    """Number of words to train, the first ones in descending ``counts``."""
    frequent = int(np.searchsorted(-counts, -config.min_count, side="right"))
    if not frequent:
        highest = int(counts[0]) if len(counts) else 0
        raise InputError(
            f"the most frequent word occurs {highest} times, and --min-count is {config.min_count}",
            "lower --min-count or use a larger corpus",
        )
    return min(frequent, config.max_vocab or frequent)


def memory_needed(n_trained: int, words: int, dim: int) -> int:
    """Approximate bytes to train ``n_trained`` of the ``words`` words of a corpus at width ``dim``."""
    width = padded_width(dim)
    numbers = dim + width if width > dim else dim
    return _FIXED_BYTES + words * _BYTES_A_WORD + n_trained * (_BYTES_A_TRAINED_WORD + 2 * 4 * numbers)


def _require_memory(n_trained: int, words: int, dim: int, limit: int) -> None:
    needed, base = (memory_needed(n, words, dim) for n in (n_trained, 0))
    if needed > limit:
        fitting = (limit - base) * n_trained // (needed - base)
        advice = f"use --max-vocab {fitting}, a higher --min-count or" if fitting > 0 else "use"
        raise ResourceError(
            f"{n_trained} words of {dim} dimensions need about {needed >> 20} MB, and --max-memory is {limit >> 20} MB",
            f"{advice} a higher --max-memory",
        )


def initial_weights(n_words: int, config: W2VConfig) -> Weights:
    """Input rows uniform in ±1/dim, as gensim draws them, and output rows zero."""
    assert config.dim is not None
    shape = (n_words, config.dim)
    rows = aligned_zeros(shape)
    np.random.default_rng(config.seed).random(dtype=np.float32, out=rows)
    rows *= 2
    rows -= 1
    rows /= shape[1]
    return Weights(rows, aligned_zeros(shape))


@dataclass(frozen=True)
class _State:
    """Both tables after ``epochs`` epochs and the parts before ``part`` of the next epoch."""

    weights: Weights
    epochs: int = 0
    part: int = 0


class _Checkpoint:
    """The last state of a run, in a file of ``folder``."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.path = folder / "checkpoint.safetensors"
        self.progress = progress
        self.saved = monotonic()
        """Time of the last save, or of the start."""

    def save(self, state: _State) -> None:
        """Save a state atomically."""
        with replacing(self.path) as path:
            write_arrays(path, state.weights._asdict(), {"epochs": str(state.epochs), "part": str(state.part)})
        self.saved = monotonic()

    def load(self, shape: tuple[int, int]) -> _State | None:
        """Load the state; ``None``, with a warning, if it is damaged."""
        if not self.path.is_file():
            return None
        weights = Weights(aligned_zeros(shape), aligned_zeros(shape))
        try:
            file = ArrayFile(self.path)
            for name, table in weights._asdict().items():
                table[:] = file[name]
        except InputError as error:
            self.progress.warn(f"checkpoint not used: {error}")
            return None
        state = _State(weights, int(file.metadata["epochs"]), int(file.metadata["part"]))
        where = f"in epoch {state.epochs + 1}" if state.part else f"after epoch {state.epochs}"
        self.progress.note(f"resuming {where}")
        return state
