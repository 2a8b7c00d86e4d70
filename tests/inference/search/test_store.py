"""The search in one text, beside that in an index on disk."""

import json
from pathlib import Path

import pytest

from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import TextSearch, find_spans
from greenadapt.stages.index import index
from tests.support.small_tasks import sentences, session
from tests.support.small_texts import WORDS_OF_TEXT

pytest.importorskip("tantivy", reason="NOT TESTED: search in a text, without tantivy")
TEXT = "\n\n".join(" ".join(" ".join(words) + "." for words in sentences(25, seed=i)) for i in range(8))
QUERY = "virus tachycardia virus"


def test_it_finds_what_an_index_of_the_text_finds_with_the_same_scores(tmp_path: Path) -> None:
    (tmp_path / "paper.jsonl").write_text(json.dumps({"id": "paper", "text": TEXT}))
    index(session(tmp_path, "px"), [str(tmp_path / "paper.jsonl")])
    on_disk = Index(tmp_path / "px")
    ours = TextSearch(TEXT, WORDS_OF_TEXT, "paper")
    assert len(ours.passages) == len(on_disk) == len(find_spans(TEXT)) > 5
    expected = on_disk.search(QUERY, top=4)
    assert expected[0].score > expected[-1].score > 0
    assert ours.find_best(QUERY, 4) == expected


def test_paragraphs_without_the_words_follow_in_order() -> None:
    text = "\n\n".join([*(f"{name} " + "of mice " * 100 for name in ("first", "second", "third")), "a virus " * 100])
    search = TextSearch(text, WORDS_OF_TEXT)
    passages = search.find_best("virus", 3)
    assert [passage.text.split()[0] for passage in passages] == ["a", "first", "second"]
    assert passages[0].score > 0
    assert [passage.score for passage in passages[1:]] == [0, 0]
    assert search.find_best("?", 10) == search.passages
    assert [passage.score for passage in search.find_best("mice", 4)][3] == 0  # all but the last, which has none
