"""Nodes that one process plays: the bytes of training alone, and vectors about as good from several nodes."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from greenadapt.progress import Silent
from greenadapt.vectors import cbow, engines
from tests.cluster.test_vectors import CONFIG, LESS, grouped_text, own_group
from tests.conftest import benchmark_module
from tests.vectors.test_cbow import prepare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster_quality() -> ModuleType:
    return benchmark_module("cluster_quality")


def test_one_node_trains_the_same_and_eight_about_as_well(
    cluster_quality: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_PART", 250)
    corpus = prepare(grouped_text(), tmp_path / "corpus")
    alone = cbow.train(corpus, CONFIG, tmp_path / "work", progress=Silent(), max_memory=1 << 30)
    single, merges = cluster_quality.trained(corpus, CONFIG, 1)
    assert (single.matrix.tobytes(), merges) == (alone.matrix.tobytes(), 0)
    eight, merges = cluster_quality.trained(corpus, CONFIG, 8)
    assert merges > 20
    assert own_group(eight) > own_group(alone) - LESS > 0.4


def test_each_text_has_a_reference_of_its_own(cluster_quality: ModuleType, tmp_path: Path) -> None:
    short = replace(CONFIG, epochs=1)
    references = {}
    for model in ("one", "another"):  # whose tokenizers split the text in other ways
        corpus = prepare(grouped_text()[: 100 * len(model)], tmp_path / model)
        text = {"corpus": "the same", "model": model}
        references[model] = cluster_quality.reference(text, corpus, short, tmp_path)
        assert np.array_equal(cluster_quality.reference(text, corpus, short, tmp_path), references[model])
    assert not np.array_equal(references["one"], references["another"])
    assert len([*tmp_path.glob("reference-*")]) == 2
