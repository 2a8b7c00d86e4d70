"""What benchmarks/collection.py counts as found."""

import gzip
import json
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

from greenadapt.progress import Silent
from greenadapt.stages.index import IndexRequest, index
from greenadapt.tasks.questions import read_questions
from tests.conftest import benchmark_module
from tests.support.small_tasks import lines, session

PAPERS = ["Bats were seen. " * 20 + "\n\nThe camel was ill. " + "It rained. " * 30, "A camel. " * 30]


@pytest.fixture
def benchmark() -> ModuleType:
    return benchmark_module("collection")


@pytest.fixture
def options(tmp_path: Path) -> Namespace:
    """Three questions on two papers, and two other paragraphs."""
    with gzip.open(tmp_path / "others.txt.gz", "wt") as file:
        file.write("short camel\n" + "A camel and another camel. " * 20 + "\n" + "Nothing at all. " * 20 + "\n")
    answers = [[(0, "camel was ill")], [(0, "rained")], [(1, "camel")]]
    questions = ["who was ill", "camel was ill", "zebra"]
    data = []
    for number, (question, [(paper, text)]) in enumerate(zip(questions, answers, strict=True)):
        answer = {"text": text, "answer_start": PAPERS[paper].index(text)}
        data.append({"id": number, "question": question, "context": PAPERS[paper], "answers": [answer]})
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    return Namespace(work=tmp_path, n=10, data=tmp_path / "data.jsonl", others=[tmp_path / "others.txt.gz"])


def test_a_question_is_found_by_a_paragraph_with_its_answer(
    benchmark: ModuleType, options: Namespace, tmp_path: Path
) -> None:
    documents, n_others = benchmark.write_documents(options, PAPERS)
    index(session(tmp_path, "plain"), IndexRequest((str(documents),)))
    numbers = {context: f"paper {i}" for i, context in enumerate(PAPERS)}
    records = benchmark.Records(tmp_path / "records.jsonl")
    questions = read_questions(str(options.data), Silent())
    row = benchmark.searched(records, tmp_path / "plain", questions, numbers)
    assert row["ranks"] == [1, 1, None]
    names = [row["id"] for row in lines(documents)]
    assert (names[:2], sorted(names[2:])) == (["paper 0", "paper 1"], ["others.txt.gz:2", "others.txt.gz:3"])
    assert n_others == 2  # not the ten that were asked for


@pytest.mark.slow
def test_an_index_is_that_of_its_options_and_its_seconds_are_all(
    benchmark: ModuleType, options: Namespace, tmp_path: Path
) -> None:
    records = benchmark.Records(tmp_path / "records.jsonl")
    documents, _ = benchmark.write_documents(options, PAPERS)
    folder = benchmark.indexed(options, records, documents, None)
    fewer, n_others = benchmark.write_documents(Namespace(**{**vars(options), "n": 1}), PAPERS)
    other_index = benchmark.indexed(options, records, fewer, None)
    assert n_others == 1
    assert records.by_key[other_index.name]["paragraphs"] == records.by_key[folder.name]["paragraphs"] - 1
    before = {path.name for path in (folder / "words").glob("*.idx")}
    unfinished = benchmark.Records(tmp_path / "none.jsonl")  # as after a kill before the record was written
    assert benchmark.indexed(options, unfinished, documents, None) == folder
    assert unfinished.by_key[folder.name]["paragraphs"] == records.by_key[folder.name]["paragraphs"]
    assert before.isdisjoint(path.name for path in (folder / "words").glob("*.idx"))
