"""The words of files."""

import gzip
import json
from pathlib import Path

import pytest

from greenadapt.corpus.readers import words_in_files
from greenadapt.errors import InputError, MissingError
from greenadapt.tokenization.vocabulary import WordSplitter
from tests.conftest import wordpiece_tokenizer

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
