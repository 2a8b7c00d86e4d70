"""Word vectors trained on a real Ray cluster: nodes that die, a driver that dies, and what is refused."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.cluster import Cluster, connected
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import InputError, ResourceError
from greenadapt.progress import Silent
from greenadapt.vectors import cbow, on_cluster
from greenadapt.vectors.engine import stream
from greenadapt.vectors.neighbours import nearest
from greenadapt.vectors.word_vectors import WordVectors
from tests.vectors.test_cbow import prepare

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]
CONFIG = W2VConfig(dim=16, min_count=1, epochs=3, sample=0, alpha=0.05)


@pytest.fixture(autouse=True)
def frequent_merges(monkeypatch: pytest.MonkeyPatch) -> None:
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
    neighbours, _ = nearest(vectors.matrix, vectors.matrix, SIZE - 1, np.arange(len(group))[:, None])
    return float((group[neighbours] == group[:, None]).mean())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return prepare(grouped_text(), tmp_path_factory.mktemp("nodes") / "corpus")


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "_PART", 250)
        yield


@pytest.fixture(scope="module")
def alone(corpus: PreparedCorpus, small_parts: None, tmp_path_factory: pytest.TempPathFactory) -> WordVectors:
    return _train(corpus, CONFIG, tmp_path_factory.mktemp("alone"), None)


@contextmanager
def connected_to(address: str, n_nodes: int) -> Iterator[Cluster]:
    """Connect to some of the nodes only."""
    with connected(address) as cluster:
        yield Cluster(cluster.ray, cluster.nodes[:n_nodes])


def _train(
    corpus: PreparedCorpus, config: W2VConfig, work: Path, cluster: Cluster | None, progress: Any = None
) -> WordVectors:
    return cbow.train(corpus, config, work, progress=progress or Silent(), max_memory=1 << 30, cluster=cluster)


@pytest.mark.long
def test_one_node_of_one_core_makes_the_bytes_of_one_machine(
    nodes: Any, corpus: PreparedCorpus, alone: WordVectors, tmp_path: Path
) -> None:
    with connected_to(nodes.address, 1) as cluster:
        assert _train(corpus, CONFIG, tmp_path / "work", cluster).matrix.tobytes() == alone.matrix.tobytes()


_DRIVER = """
import sys
from pathlib import Path
from greenadapt.cluster import connected
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.vectors import cbow, on_cluster
from greenadapt.vectors.engine import stream
corpus, work, address, config = sys.argv[1:]
stream._PART, cbow.CHECKPOINT_SECONDS = 250, 0
with connected(address) as cluster:
    cluster.nodes = cluster.nodes[:2]
    corpus = PreparedCorpus.open(Path(corpus))
    cbow.train(corpus, eval(config), Path(work), progress=Silent(), max_memory=1 << 30, cluster=cluster)
"""


@pytest.mark.long
def test_a_driver_that_was_killed_goes_on(
    nodes: Any, corpus: PreparedCorpus, alone: WordVectors, tmp_path: Path
) -> None:
    work, notes = tmp_path / "work", list[str]()
    arguments = [str(corpus.folder), str(work), nodes.address, repr(CONFIG)]
    driver = subprocess.Popen([sys.executable, "-c", _DRIVER, *arguments])
    end = time.monotonic() + 100
    while not list(work.glob("checkpoint.safetensors")):
        assert driver.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()

    class Noting(Silent):
        def note(self, message: str) -> None:
            notes.append(message)

    with connected_to(nodes.address, 2) as cluster:
        assert own_group(_train(corpus, CONFIG, work, cluster, Noting())) > own_group(alone) - LESS
    assert notes[0].startswith("resuming")


@pytest.mark.long
def test_what_nodes_cannot_do_is_said_in_one_line(nodes: Any, corpus: PreparedCorpus, tmp_path: Path) -> None:
    with connected_to(nodes.address, 1) as cluster:
        with pytest.raises(InputError, match="training diverged in epoch 1"):
            _train(corpus, replace(CONFIG, alpha=100), tmp_path / "work", cluster)
        cluster.nodes = [replace(node, memory=1000) for node in cluster.nodes]
        with pytest.raises(ResourceError, match=rf"{cluster.nodes[0].address} has 0 MB"):
            _train(corpus, CONFIG, tmp_path / "other", cluster)
