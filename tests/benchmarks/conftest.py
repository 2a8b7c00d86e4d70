"""What tests of the engines' benchmarks share."""

from pathlib import Path
from types import ModuleType

import pytest

from greenadapt.corpus.prepared import PreparedCorpus
from tests.conftest import benchmark_module

Benchmarks = dict[str, ModuleType]


@pytest.fixture(scope="module")
def benchmarks() -> Benchmarks:
    """The modules of ``benchmarks/engines.py`` by name."""
    names = (
        "machine",
        "word2vec_c",
        "planted",
        "engine_sides",
        "engine_texts",
        "engine_runs",
        "engine_tables",
        "engines",
    )
    return {name: benchmark_module(name) for name in names}


@pytest.fixture
def corpus(benchmarks: Benchmarks, tmp_path: Path) -> PreparedCorpus:
    """A random text of 4,000 words with 50 different ones, all of which it has."""
    return PreparedCorpus.open(benchmarks["engine_texts"].made({"zipf": 50, "tokens": 4000}, tmp_path, is_written=True))
