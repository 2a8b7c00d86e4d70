"""Where words occur, against a search line by line."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import greenadapt.corpus.prepared as module
from greenadapt.corpus.prepared import PreparedCorpus, find_contexts
from greenadapt.corpus.readers import words_in_files
from greenadapt.corpus.text import Document
from greenadapt.errors import InputError, MissingError
from greenadapt.tokenization.vocabulary import WordSplitter
from tests.conftest import wordpiece_tokenizer
from tests.corpus.test_prepared import prepare


@pytest.fixture
def corpus(tmp_path: Path) -> PreparedCorpus:
    """200 lines of 1 to 30 words, of which "w0" is in almost every line and "w39" in few."""
    draw = np.random.default_rng(0)
    share = 1 / np.arange(1, 41)
    lines = [
        " ".join(f"w{i}" for i in draw.choice(40, draw.integers(1, 31), p=share / share.sum())) for _ in range(200)
    ]
    (tmp_path / "splitter.json").write_text(wordpiece_tokenizer().to_str())
    prepare([Document((line,)) for line in lines], tmp_path / "splitter.json", tmp_path)
    return PreparedCorpus.open(tmp_path)


def _by_hand(corpus: PreparedCorpus, word: str) -> list[tuple[list[str], int]]:
    """Every line with the word, and its first place in it."""
    lines = [corpus.ids[begin:end].tolist() for begin, end in zip(corpus.lines[:-1], corpus.lines[1:], strict=True)]
    words = [[corpus.words[i] for i in line] for line in lines]
    return [(line, line.index(word)) for line in words if word in line]


def test_the_first_lines_with_a_word(corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEARCHED_AT_ONCE", 37)  # lines that lie in two blocks
    contexts = find_contexts(corpus, ["w0", "w7", "w39", "none"], 3, 100)
    for word in ("w0", "w7", "w39"):
        expected = _by_hand(corpus, word)[:3]
        assert [(context.words, context.position) for context in contexts[word]] == expected
    assert len(contexts["w0"]) == 3
    assert contexts["none"] == []


def test_a_long_line_is_cut_around_the_word(corpus: PreparedCorpus) -> None:
    whole = {len(line) for line, _ in _by_hand(corpus, "w5")}
    assert max(whole) > 8
    for context, (line, position) in zip(
        find_contexts(corpus, ["w5"], 1000, 8)["w5"], _by_hand(corpus, "w5"), strict=True
    ):
        begin = position - context.position
        assert context.words == line[begin : begin + 8]
        assert len(context.words) == min(8, len(line))
        assert context.words[context.position] == "w5"
        assert context.position == 4 or begin == 0 or begin + 8 == len(line)


SPLITTER = WordSplitter(wordpiece_tokenizer())


def test_plain_lines_tags_and_all(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("Tachycardia\tB-Disease\n\nof\tO\n")
    assert words_in_files([tmp_path / "a.tsv"], SPLITTER) == {"tachycardia", "b", "-", "disease", "of", "o"}


def test_words_that_only_added_tokens_see(tmp_path: Path) -> None:
    # To BERT, ± is a part of the word; to an added token, which ends at \\w, it is a boundary.
    (tmp_path / "a.txt").write_text("Kinases±x°C\n")
    assert words_in_files([tmp_path / "a.txt"], SPLITTER) == {"kinases±x°c", "kinases", "x", "c"}


def test_every_string_of_json_and_none_of_its_escapes(tmp_path: Path) -> None:
    record = {"text": "caf\u00e9\nau lait", "tokens": ["beta-", "blocker"], "n": 3, "deep": [{"q": "why?"}]}
    (tmp_path / "a.json").write_text(json.dumps(record))
    with gzip.open(tmp_path / "B.JSONL.GZ", "wt") as file:
        file.write(json.dumps(record) + "\n\n")
    words = {"cafe", "au", "lait", "beta", "-", "blocker", "why", "?"}
    for name in ("a.json", "B.JSONL.GZ"):
        assert words_in_files([tmp_path / name], SPLITTER) == words


def test_broken_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    with pytest.raises(InputError, match=r"a\.jsonl, line 2, column 9 is not JSON"):
        words_in_files([tmp_path / "a.jsonl"], SPLITTER)
    with pytest.raises(MissingError, match=r"gone\.txt does not exist"):
        words_in_files([tmp_path / "gone.txt"], SPLITTER)
