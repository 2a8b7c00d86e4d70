"""``benchmarks/engines.py`` and what it is made of, and a text for tests of them."""

from pathlib import Path
from types import ModuleType

from greenadapt.corpus.prepared import PreparedCorpus
from tests.conftest import load_benchmark

MODULES = (
    "machine", "records", "tables", "word2vec_c", "planted", "engine_sides", "engine_texts", "vector_quality",
    "engine_runs", "engine_tables", "engines",
)  # fmt: skip
Benchmarks = dict[str, ModuleType]


def load() -> Benchmarks:
    """The modules by name."""
    return {name: load_benchmark(name) for name in MODULES}


def random_corpus(benchmarks: Benchmarks, folder: Path) -> PreparedCorpus:
    """4,000 words, 50 different ones, all of which were drawn."""
    return PreparedCorpus.open(benchmarks["engine_texts"].made({"zipf": 50, "tokens": 4000}, folder, is_written=True))
