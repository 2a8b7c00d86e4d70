"""How good word vectors are, without a task: how well they map into a model's space, and which words are near."""

import numpy as np
from gensim.test.utils import datapath
from scipy.stats import spearmanr

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import find_model
from greenadapt.config import AlignConfig
from greenadapt.storage.arrays import Array
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.vectors.alignment import overlap
from greenadapt.vectors.neighbours import nearest, unit_rows
from greenadapt.vectors.quality import KnownWords, fit_and_measure
from greenadapt.vectors.word_vectors import WordVectors

_FIGURES = {"P@1": "precision_at_1", "P@10": "precision_at_10", "MRR": "mrr"}
_TENTHS = range(1, 11)  # seeds of the splits
_JUDGED = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
_MIN_PAIRS = 50
_QUERIES, _FREQUENT, _NEAREST = 2_000, 20_000, 10


def alignment(vectors: WordVectors, model: str) -> dict[str, float]:
    """Of the map from ``vectors`` to the model's rows (``greenadapt align``): means over ten held-out tenths.

    A tenth of the words that the model has, too, look for their own row among all of the model's rows, by cosine, under
    a map that is fitted on the others.
    """
    folder = find_model(model).folder
    vocabulary, base = BaseVocabulary(load_tokenizer(folder)), Checkpoint.open(folder).embedding()
    _, rows, ids = overlap(vectors, vocabulary)
    pairs = np.asarray(vectors.matrix[rows], np.float32)
    words = KnownWords(pairs, vectors.counts[rows], ids, base[: vocabulary.size], special_ids=vocabulary.special_ids)
    figures = []
    for seed in _TENTHS:
        diagnosed = fit_and_measure(words, AlignConfig(seed=seed))[0].figures
        assert diagnosed is not None
        figures.append([getattr(diagnosed.base_rows["cosine"], name) for name in _FIGURES.values()])
    return dict(zip(_FIGURES, np.mean(figures, axis=0).tolist(), strict=True))


def neighbours(vectors: WordVectors) -> Array:
    """The rows of the ten words nearest to each of 2,000 words among the 20,000 most frequent: int64 ``(2000, 10)``.

    Which words these are is the same for all vectors of a vocabulary.
    """
    n = min(_FREQUENT, len(vectors.words))
    queries = np.random.default_rng(0).choice(n, min(_QUERIES, n), replace=False)
    return nearest(vectors.matrix[queries], vectors.matrix, _NEAREST, queries[:, None])[0]


def shared(neighbours: Array, reference: Array) -> float:
    """Share of neighbours that both have, ``(n, 10)`` each."""
    return float((neighbours[:, :, None] == reference[:, None, :]).any(axis=2).mean())


def similarity(vectors: WordVectors) -> tuple[dict[str, float], list[str]]:
    """Spearman's correlation of cosines with judgements of people, and what is to be said where there are too few.

    The two sets of pairs are those that gensim brings along; a pair counts where both words have a vector, if need be
    lower-cased.
    """
    scores, notes = {}, []
    for name, file in _JUDGED.items():
        pairs = _covered(vectors, file)
        if len(pairs) < _MIN_PAIRS:
            notes.append(f"{name}: {len(pairs)} pairs have vectors, needs {_MIN_PAIRS}: skipped")
            continue
        first, second, judged = (np.array(column) for column in zip(*pairs, strict=True))
        cosines = (unit_rows(vectors.matrix[first]) * unit_rows(vectors.matrix[second])).sum(axis=1)
        scores[f"{name}, {len(pairs)} pairs"] = float(spearmanr(cosines, judged).statistic)
    return scores, notes


def _covered(vectors: WordVectors, file: str) -> list[tuple[int, int, float]]:
    """The rows of both words, and the judgement."""
    pairs = []
    with open(datapath(file), encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith("#"):
                *words, judged = line.split("\t")[:3]
                first, second = (vectors.index.get(word, vectors.index.get(word.lower())) for word in words)
                if first is not None and second is not None:
                    pairs.append((first, second, float(judged)))
    return pairs
