"""How good word vectors are that several nodes trained together, each on its own parts of the text.

One process plays all nodes in turns, one thread each, with the code that a cluster runs; only Ray is left out. So the
vectors of a number of nodes are the same bytes on every machine, and how many cores there are does not matter.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import vector_quality

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json, hash_json
from greenadapt.storage.outputs import open_file
from greenadapt.vectors.cbow import initial_weights, vocabulary_size
from greenadapt.vectors.engines import Stream, StreamPart, learning_rate
from greenadapt.vectors.engines.fast import FastEngine
from greenadapt.vectors.on_cluster import Trainer, assign_parts, parts_per_core, round_size
from greenadapt.vectors.word_vectors import WordVectors

_REFERENCE_SEED = 99


def measured(settings: Json, folder: Path, work: Path) -> Json:
    """Train as ``settings`` on the text in ``folder``, and score the vectors."""
    corpus = PreparedCorpus.open(folder)
    config = W2VConfig(engine="fast", **{name: settings[name] for name in ("dim", "epochs", "seed", "sync_words")})
    vectors, rounds = trained(corpus, config, settings["nodes"])
    if "planted" in settings["text"]:
        return {**planted.scores(vectors), "rounds": rounds}
    best = reference(settings["text"], corpus, config, work)
    return {
        **vector_quality.alignment(vectors, settings["text"]["model"]),
        "neighbours": vector_quality.shared(vector_quality.neighbours(vectors), best),
        "rounds": rounds,
    }


def reference(text: Json, corpus: PreparedCorpus, config: W2VConfig, work: Path) -> Array:
    """Neighbours in vectors that one node trained twice as long on ``text``, from another seed; kept in ``work``."""
    longer = replace(config, epochs=2 * config.epochs, seed=_REFERENCE_SEED)
    path = work / f"reference-{hash_json([text, longer.dim, longer.epochs])[:12]}.npy"
    if not path.exists():
        neighbours = vector_quality.neighbours(trained(corpus, longer, 1)[0])
        with open_file(path, "wb") as file:
            np.save(file, neighbours)
    return np.load(path)


def trained(corpus: PreparedCorpus, config: W2VConfig, n_nodes: int) -> tuple[WordVectors, int]:
    """The vectors of ``n_nodes`` nodes of one thread each, and how often they merged what they learned."""
    counts = np.array(corpus.counts[: vocabulary_size(corpus.counts, config)])
    stream = Stream(corpus.ids, corpus.lines, counts)
    parts = FastEngine(stream, config).parts
    weights = initial_weights(len(counts), config)
    trainers = [Trainer() for _ in range(n_nodes)]
    for trainer in trainers:
        trainer.start(corpus.stream_file, (counts, stream.total), config, weights.input, weights.output)
    merges = 0
    for epoch, by_trainer in _rounds(parts, config, n_nodes, stream.total):
        for trainer, batch in zip(trainers, by_trainer, strict=False):
            trainer.train(batch, epoch)
        if n_nodes > 1:
            merges += 1
            rate = learning_rate(
                config, epoch, min(part.before for batch in by_trainer for part in batch) / stream.total
            )
            words = sum(part.words for batch in by_trainer for part in batch) / len(by_trainer)
            _merge(trainers, rate, words)
    return WordVectors(list(corpus.words[: len(counts)]), counts, trainers[0].tables()[0]), merges


def _rounds(
    parts: list[StreamPart], config: W2VConfig, n_nodes: int, total: int
) -> Iterator[tuple[int, list[list[StreamPart]]]]:
    """The epoch of each round, and what it gives to each node."""
    per_core = parts_per_core(config, len(parts), total)
    for epoch in range(config.epochs):
        at = 0
        while at < len(parts):
            size, n = round_size(epoch * len(parts) + at, [1] * n_nodes, per_core)
            rng = np.random.default_rng([config.seed, epoch, parts[at].number])
            yield epoch, assign_parts(parts[at : at + size], [1] * n, rng)
            at += size


def _merge(trainers: list[Trainer], rate: float, words: float) -> None:
    n = len(trainers)
    sent = [trainer.changes(n) for trainer in trainers]
    merges = [trainers[i].merge(i, n, rate, words, *(slices[i] for slices in sent)) for i in range(n)]
    for trainer in trainers:
        trainer.receive(*merges)
        trainer.commit()
