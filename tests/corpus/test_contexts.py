"""Where words occur, against a search line by line."""

from pathlib import Path

import numpy as np
import pytest

import greenadapt.corpus.lookup as module
from greenadapt.config import CorpusConfig
from greenadapt.corpus.lookup import find_contexts
from greenadapt.corpus.prepared import PreparedCorpus, prepare_corpus
from greenadapt.corpus.text import Document
from greenadapt.progress import Silent
from tests.conftest import wordpiece_tokenizer


@pytest.fixture
def corpus(tmp_path: Path) -> PreparedCorpus:
    """200 lines of 1 to 30 words, of which "w0" is in almost every line and "w39" in few."""
    draw = np.random.default_rng(0)
    share = 1 / np.arange(1, 41)
    lines = [
        " ".join(f"w{i}" for i in draw.choice(40, draw.integers(1, 31), p=share / share.sum())) for _ in range(200)
    ]
    (tmp_path / "splitter.json").write_text(wordpiece_tokenizer().to_str())
    documents = [Document([line], "") for line in lines]
    options = {"workers": 1, "max_memory": 1 << 30, "progress": Silent()}
    prepare_corpus(documents, tmp_path / "splitter.json", tmp_path, CorpusConfig(), **options)  # type: ignore[arg-type]
    return PreparedCorpus.open(tmp_path)


def _by_hand(corpus: PreparedCorpus, word: str) -> list[tuple[list[str], int]]:
    """Every line with the word, and its first place in it."""
    lines = [corpus.ids[begin:end].tolist() for begin, end in zip(corpus.lines[:-1], corpus.lines[1:], strict=True)]
    words = [[corpus.words[i] for i in line] for line in lines]
    return [(line, line.index(word)) for line in words if word in line]


def test_the_first_lines_with_a_word(corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 37)  # lines that lie in two blocks
    found = find_contexts(corpus, ["w0", "w7", "w39", "none"], 3, 100)
    for word in ("w0", "w7", "w39"):
        expected = _by_hand(corpus, word)[:3]
        assert [(one.words, one.position) for one in found[word]] == expected
    assert len(found["w0"]) == 3
    assert found["none"] == []


def test_a_long_line_is_cut_around_the_word(corpus: PreparedCorpus) -> None:
    whole = {len(line) for line, _ in _by_hand(corpus, "w5")}
    assert max(whole) > 8
    for one, (line, place) in zip(find_contexts(corpus, ["w5"], 1000, 8)["w5"], _by_hand(corpus, "w5"), strict=True):
        begin = place - one.position
        assert one.words == line[begin : begin + 8]
        assert len(one.words) == min(8, len(line))
        assert one.words[one.position] == "w5"
        assert one.position == 4 or begin == 0 or begin + 8 == len(line)
