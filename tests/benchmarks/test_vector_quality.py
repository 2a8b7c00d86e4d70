"""``benchmarks/vector_quality.py``: figures of vectors, against gensim's and by hand."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.tokenization.vocabulary import BaseVocabulary, load_tokenizer
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import benchmark_module


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    return benchmark_module("vector_quality")


def random_vectors(words: list[str], dim: int = 8) -> WordVectors:
    matrix = np.random.default_rng(0).normal(size=(len(words), dim)).astype(np.float32)
    return WordVectors(words, np.ones(len(words), np.int64), matrix)


def as_gensim(vectors: WordVectors) -> KeyedVectors:
    keyed = KeyedVectors(vectors.dim)
    keyed.add_vectors(vectors.words, vectors.matrix)
    return keyed


def test_similarity_is_gensims(quality: ModuleType) -> None:
    files = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
    rows = [line.split("\t") for file in files.values() for line in Path(datapath(file)).read_text().splitlines()]
    words = dict.fromkeys(word.lower() for row in rows if not row[0].startswith("#") for word in row[:2])
    vectors = random_vectors([word for number, word in enumerate(words) if number % 5])
    scores, notes = quality.similarity(vectors)
    assert not notes
    assert len(scores) == 2
    for (title, score), (name, file) in zip(scores.items(), files.items(), strict=True):
        _, spearman, missing = as_gensim(vectors).evaluate_word_pairs(datapath(file))
        n_pairs = {"WordSim-353": 353, "SimLex-999": 999}[name]
        assert title == f"{name}, {round(n_pairs * (1 - missing / 100))} pairs"
        assert score == pytest.approx(spearman.statistic, abs=1e-6)


def test_too_few_pairs_are_said(quality: ModuleType) -> None:
    scores, notes = quality.similarity(random_vectors(["tiger", "cat", "old", "new"]))
    assert scores == {}
    assert notes[0] == "WordSim-353: 2 pairs have vectors, needs 50: skipped"  # tiger and cat, and tiger twice


def test_turned_rows_of_a_model_find_themselves(quality: ModuleType, tiny_model: Callable[..., Path]) -> None:
    folder = tiny_model(width=16)
    vocabulary = BaseVocabulary(load_tokenizer(folder))
    words, base = list(vocabulary.whole_words), np.asarray(Checkpoint.open(folder).embedding(), np.float32)
    vectors = random_vectors(words, 16)
    assert quality.alignment(vectors, str(folder))["P@1"] < 0.5
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(16, 16)))[0]
    vectors.matrix[:] = base[[vocabulary.whole_words[word] for word in words]] @ turn
    assert quality.alignment(vectors, str(folder)) == pytest.approx({"P@1": 1, "P@10": 1, "MRR": 1})


def test_neighbours_are_gensims_and_shared_ones_are_counted(quality: ModuleType) -> None:
    vectors = random_vectors([f"w{number}" for number in range(300)])
    neighbours, keyed = quality.neighbours(vectors), as_gensim(vectors)
    queries = np.random.default_rng(0).choice(300, 300, replace=False)
    for query, ids in list(zip(queries.tolist(), neighbours.tolist(), strict=True))[:20]:
        assert [f"w{row}" for row in ids] == [word for word, _ in keyed.most_similar(f"w{query}", topn=10)]
    assert quality.shared(neighbours, neighbours) == 1
    assert quality.shared(np.array([[1, 2], [3, 4]]), np.array([[2, 9], [4, 3]])) == 0.75
