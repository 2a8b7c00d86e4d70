"""``benchmarks/splitting.py``: both sides split alike, and a splitter that does not is found."""

from types import ModuleType

import pytest

from greenadapt.corpus.splitting import BatchSplitter, DocumentLog, make_batches
from greenadapt.tokenization.vocabulary import WordSplitter
from tests.conftest import benchmark_module, wordpiece_tokenizer

LINES = ["Beta-blockers, é\u0301té 2 µg", "", "one\ttwo   three", "naïve 日本 x", " leading and trailing "]


@pytest.fixture(scope="module")
def splitting() -> ModuleType:
    return benchmark_module("splitting")


def test_both_sides_are_timed_on_the_same_words(splitting: ModuleType) -> None:
    tokenizer = wordpiece_tokenizer()
    splitter = WordSplitter(tokenizer)
    documents = [splitting.Paragraph((line,)) for line in LINES]
    batches = list(make_batches(documents, DocumentLog(), cut_lines=splitter.chunkwise))

    def plain(lines: list[str]) -> list[list[str]]:
        return list(splitting.plain(tokenizer, lines))

    words, seconds = splitting.timed(batches * 2, plain, BatchSplitter(splitter))
    assert words == 2 * sum(map(len, plain([line for line in LINES if line])))
    assert min(seconds.values()) > 0
    with pytest.raises(SystemExit, match="batch 0"):
        splitting.timed(batches, lambda lines: plain(lines[1:]), BatchSplitter(splitter))
