"""What tests of the engines' benchmarks share."""

from pathlib import Path

import pytest

from greenadapt.corpus.prepared import PreparedCorpus
from tests.support.engine_benchmarks import Benchmarks, load, random_corpus


@pytest.fixture(scope="module")
def benchmarks() -> Benchmarks:
    return load()


@pytest.fixture
def corpus(benchmarks: Benchmarks, tmp_path: Path) -> PreparedCorpus:
    return random_corpus(benchmarks, tmp_path)
