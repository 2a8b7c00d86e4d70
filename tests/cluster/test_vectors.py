"""Word vectors trained on a real Ray cluster: on one node, on two, and what is refused."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.cluster import Cluster, connect
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import ResourceError
from greenadapt.progress import Silent
from greenadapt.vectors import cbow, on_cluster
from greenadapt.vectors.engine import stream
from greenadapt.vectors.neighbours import find_nearest
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import Watcher
from tests.support.small_cluster import ADDRESS
from tests.vectors.test_cbow import prepare

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]
CONFIG = W2VConfig(dim=16, min_count=1, epochs=3, sample=0, alpha=0.05)


@pytest.fixture(autouse=True)
def small_parts_often_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_PART", 250)
    monkeypatch.setattr(on_cluster, "SYNC_WORDS", 500)


GROUPS, SIZE = 100, 6
LESS = 0.05
"""Of the nearest words, how many fewer may be of the own group than on one machine; if tables were averaged, 0.4."""


def grouped_text() -> list[list[str]]:
    """6,000 lines of one of 100 groups of words each; six of ten words are of any group."""
    rng = np.random.default_rng(0)
    of_lines, drawn = np.arange(6000)[:, None] % GROUPS, rng.random((6000, 10))
    groups = np.where(drawn < 0.6, rng.integers(GROUPS, size=(6000, 10)), of_lines)
    members = rng.integers(SIZE, size=(6000, 10))
    return [
        [f"{group}-{member}" for group, member in zip(*line, strict=True)]
        for line in zip(groups.tolist(), members.tolist(), strict=True)
    ]


def own_group(vectors: WordVectors) -> float:
    """Share of the nearest words that are of the own group."""
    group = np.array([int(word.partition("-")[0]) for word in vectors.words])
    neighbours, _ = find_nearest(vectors.matrix, vectors.matrix, SIZE - 1, np.arange(len(group))[:, None])
    return float((group[neighbours] == group[:, None]).mean())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return prepare(grouped_text(), tmp_path_factory.mktemp("nodes") / "corpus")


@contextmanager
def connected_to(address: str, n_nodes: int) -> Iterator[Cluster]:
    """Connect to some of the nodes only."""
    with connect(address) as cluster:
        yield Cluster(cluster.ray, cluster.nodes[:n_nodes])


def _train(
    corpus: PreparedCorpus, config: W2VConfig, work: Path, cluster: Cluster | None, progress: Silent | None = None
) -> WordVectors:
    return cbow.train(corpus, config, work, progress=progress or Silent(), max_memory=1 << 30, cluster=cluster)


class Calling(Watcher):
    """Calls a function at the first step."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self.function = function

    def advance(self, amount: float, **facts: str) -> None:
        if not self.steps:
            self.function()
        super().advance(amount, **facts)


def test_one_node_of_one_core_makes_the_bytes_of_one_machine(any_nodes: Any, tmp_path: Path) -> None:
    corpus, config = prepare(grouped_text()[:600], tmp_path / "corpus"), replace(CONFIG, epochs=1)
    alone = _train(corpus, config, tmp_path / "alone", None)
    with connected_to(any_nodes.address, 1) as cluster:
        assert _train(corpus, config, tmp_path / "work", cluster).matrix.tobytes() == alone.matrix.tobytes()


@pytest.mark.long
def test_vectors_of_two_nodes_are_as_good(nodes: Any, corpus: PreparedCorpus, tmp_path: Path) -> None:
    alone = own_group(_train(corpus, CONFIG, tmp_path / "alone", None))
    with connected_to(nodes.address, 2) as cluster:
        assert own_group(_train(corpus, CONFIG, tmp_path / "work", cluster)) > alone - LESS


def test_training_that_is_stopped_resumes_and_a_node_that_dies_or_is_too_small_ends_it(
    nodes: Any, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    with connect(nodes.address) as cluster:
        small = Cluster(cluster.ray, [replace(node, memory=10) for node in cluster.nodes])
        with pytest.raises(ResourceError, match=rf"on each node, and node {ADDRESS} has 0 MB"):
            _train(corpus, CONFIG, tmp_path / "small", small)
        with pytest.raises(SystemExit):
            _train(corpus, CONFIG, tmp_path / "work", cluster, Calling(lambda: signal.raise_signal(signal.SIGTERM)))
        dying = Calling(lambda: nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False))
        with pytest.raises(ResourceError, match=r"a node of the cluster died .* which resumes"):
            _train(corpus, CONFIG, tmp_path / "work", cluster, dying)
    assert dying.notes == ["resuming in epoch 1"]
