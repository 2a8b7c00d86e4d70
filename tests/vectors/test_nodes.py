"""Nodes that die or join while word vectors are trained, at chosen moments, without a cluster."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.cluster import Cluster, Node
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import ResourceError
from greenadapt.vectors import engines, on_cluster
from greenadapt.vectors.engines import Stream, Weights
from greenadapt.vectors.on_cluster import ClusterEngine
from tests.conftest import Notes
from tests.support.local_ray import LocalRay
from tests.vectors.test_cbow import prepare

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
CONFIG = W2VConfig(dim=8, min_count=1, epochs=6, engine="fast", sample=0, sync_words=100)
MEMORY = 1 << 30


def node(number: int, memory: int = MEMORY) -> Node:
    return Node(f"{number + 1:056x}", f"10.0.0.{number}", 1, 0, memory)


@pytest.fixture
def corpus(tmp_path: Path) -> PreparedCorpus:
    """100 parts of 100 words."""
    words = np.random.default_rng(0).integers(50, size=(500, 20))
    return prepare([[f"word{word}" for word in line] for line in words.tolist()], tmp_path / "corpus")


class Training:
    """An engine on ``n_nodes`` nodes of a local Ray, and what was trained on by each."""

    def __init__(self, corpus: PreparedCorpus, n_nodes: int, patch: pytest.MonkeyPatch, **options: Any) -> None:
        self.ray, self.alive, self.notes = LocalRay(**options), [node(i) for i in range(n_nodes)], Notes()
        patch.setattr(on_cluster, "alive_nodes", lambda ray: self.alive)
        patch.setattr(engines, "_PART", 100)
        patch.setattr(Cluster, "on_each_node", lambda self, function, *given: {n: function(*given) for n in self.nodes})
        counts = np.bincount(corpus.ids)
        stream = Stream(corpus.ids, corpus.lines, counts, len(corpus.ids))
        cluster = Cluster(self.ray, self.alive)
        self.engine = ClusterEngine(cluster, corpus.folder / "words.safetensors", stream, CONFIG, self.notes)
        rng = np.random.default_rng(0)
        self.weights = Weights(
            rng.normal(0, 0.01, (len(counts), CONFIG.dim)).astype(np.float32),
            np.zeros((len(counts), CONFIG.dim), np.float32),
        )
        self.words = 0

    def epoch(self, epoch: int = 2, **options: Any) -> int:
        def advance(words: int, rate: float) -> None:
            self.words += words

        return self.engine.train_epoch(self.weights, epoch, advance, **options)

    def trained(self, of: Callable[[Any], bool]) -> list[int]:
        """Numbers of the parts that the chosen actors trained on."""
        calls = [call for actor in self.ray.actors if of(actor) for call in actor.calls]
        return sorted(part.number for name, given in calls if name == "train" for part in given[0])


@pytest.mark.parametrize("when", ["train", "changes", "merge", "receive"])
def test_what_a_dead_node_learned_is_learned_by_the_others(
    when: str, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(corpus, 2, monkeypatch, deaths=[(1, when, 2)])
    training.epoch()
    assert training.words == len(corpus.ids)
    # Before it died, what the second node had learned was merged once.
    merged = next(given[0] for name, given in training.ray.actors[1].calls if name == "train")
    alone = training.trained(lambda actor: actor.number == 0)
    assert sorted([*alone, *(part.number for part in merged)]) == [part.number for part in training.engine._parts]
    assert any("10.0.0.1 died" in warning for warning in training.notes.warnings)


@pytest.mark.parametrize("round_", [2, 3, 4, 5])
def test_training_stops_where_it_can_go_on(
    round_: int, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(corpus, 4, monkeypatch, deaths=[(i, "train", round_) for i in (1, 2, 3)])
    done = training.epoch(stop=lambda: training.engine.traffic.lost > 0)
    assert 0 < done < len(training.engine._parts)
    assert training.words == sum(part.words for part in training.engine._parts[:done])
    assert training.trained(lambda actor: True) == [part.number for part in training.engine._parts[:done]]


def test_a_node_that_joins_and_cannot_train_is_left_out(
    corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(corpus, 1, monkeypatch)
    training.epoch()
    training.alive += [node(7, memory=10), node(8)]
    training.epoch(3)
    assert len(training.ray.actors) == 2
    [warning] = training.notes.warnings
    assert "left out" in warning
    assert "10.0.0.7" in warning
    training.epoch(3)
    assert len(training.notes.warnings) == 1


def test_a_node_without_memory_at_the_beginning_is_an_error(
    corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(corpus, 2, monkeypatch)
    training.alive[1] = node(1, memory=10)
    with pytest.raises(ResourceError, match=r"10\.0\.0\.1 has 0 MB"):
        training.epoch()
