"""Nodes that one process plays: the bytes of training alone, and vectors about as good from several nodes."""

from pathlib import Path

import pytest

from greenadapt.progress import Silent
from greenadapt.vectors import cbow
from greenadapt.vectors.engines import parts
from tests.cluster.test_vectors import CONFIG, LESS, grouped_text, own_group
from tests.conftest import load_benchmark
from tests.vectors.test_cbow import prepare

pytestmark = pytest.mark.slow


def test_one_node_trains_the_same_and_eight_about_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("planted", "vector_quality"):
        load_benchmark(name)
    cluster_quality = load_benchmark("cluster_quality")
    monkeypatch.setattr(parts, "_PART", 250)
    corpus = prepare(grouped_text(), tmp_path / "corpus")
    alone = cbow.train(corpus, CONFIG, tmp_path / "work", progress=Silent(), max_memory=1 << 30)
    one, merges = cluster_quality.trained(corpus, CONFIG, 1)
    assert (one.matrix.tobytes(), merges) == (alone.matrix.tobytes(), 0)
    eight, merges = cluster_quality.trained(corpus, CONFIG, 8)
    assert merges > 20
    assert own_group(eight) > own_group(alone) - LESS > 0.4
