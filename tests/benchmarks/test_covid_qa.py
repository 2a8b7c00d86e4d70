"""The pure parts of ``benchmarks/covid_qa.py``: the folds, which questions are asked, and what the table says."""

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from greenadapt.progress import Silent
from greenadapt.tasks.questions import read_questions
from tests.conftest import benchmark_module
from tests.support.small_tasks import TinyModel, qa_file, sentences

Json = dict[str, Any]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return benchmark_module("covid_qa")


def paragraph(number: int, n_questions: int, first: int = 0) -> Json:
    """A paper as the Covid-QA file has it: integer ids, and an offset that is wrong."""
    answer = {"text": f"virus {number}", "answer_start": 7}
    qas = [
        {"id": 1000 * number + i, "question": f"which virus, {i}?", "answers": [answer], "is_impossible": False}
        for i in range(first, first + n_questions)
    ]
    return {"context": f"paper of virus {number} in bats", "document_id": number, "qas": qas}


def write_data(folder: Path, sizes: list[int]) -> argparse.Namespace:
    """A file of papers; the last one's questions are in two paragraphs of different articles."""
    paragraphs = [paragraph(number, size) for number, size in enumerate(sizes)]
    paragraphs.append(paragraph(len(sizes) - 1, 2, first=sizes[-1]))
    file = folder / "covid.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [entry]} for entry in paragraphs]}))
    return argparse.Namespace(data=file, work=folder, seed=3, questions=None)


def contexts_of(file: Path) -> dict[str, str]:
    """Id of each question → its context, as greenadapt reads them."""
    return {question.id: question.context for question in read_questions(str(file), Silent())}


def test_no_paper_is_in_two_folds_and_every_question_in_one(bench: ModuleType, tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).integers(1, 30, size=40).tolist()
    options = write_data(tmp_path, sizes)
    all_contexts = contexts_of(options.data)
    assert len(all_contexts) == sum(sizes) + 2
    tests = []
    for fold in "01234":
        folder = tmp_path / f"fold-{fold}"
        tests.append(contexts_of(bench.write_questions(options, fold, folder)))
        train = contexts_of(folder / "train.json")
        assert not set(train.values()) & set(tests[-1].values())
        assert train | tests[-1] == all_contexts
    assert sorted(question for fold in tests for question in fold) == sorted(all_contexts)
    assert sum(len(set(fold.values())) for fold in tests) == len(sizes)
    counts = [len(fold) for fold in tests]
    assert max(counts) - min(counts) <= 1


def test_folds_are_stable_and_drawn_by_the_seed(bench: ModuleType) -> None:
    sizes = [5] * 20
    assert bench.split(sizes, 5, 0) == bench.split(sizes, 5, 0)
    assert bench.split(sizes, 5, 0) != bench.split(sizes, 5, 1)
    assert [sum(sizes[i] for i in fold) for fold in bench.split(sizes, 5, 1)] == [20] * 5


def test_one_large_paper_has_a_fold_of_its_own(bench: ModuleType) -> None:
    folds = bench.split([1, 1, 1, 50, 1, 1], 3, 0)
    assert [3] in folds


def test_fewer_questions_are_a_part_of_more(bench: ModuleType) -> None:
    chosen = [paragraph(number, size) for number, size in enumerate([9, 1, 20, 4])]
    small, large = (bench.drawn(chosen, n, 0) for n in (6, 15))
    ids = [{question["id"] for paper in part for question in paper["qas"]} for part in (small, large)]
    assert list(map(len, ids)) == [6, 15]
    assert ids[0] < ids[1]
    assert bench.drawn(chosen, 34, 0) == bench.drawn(chosen, None, 0) == chosen
    assert all(paper["qas"] for paper in small)


def scored(value: float) -> Json:
    """An answer with the same value for its three scores."""
    return {"answer": f"answer of {value}"} | dict.fromkeys(("em", "f1", "substr"), value)


def row(number: int, base: float, averaged: float) -> Json:
    """A line of ``greenadapt qa --compare``, as far as it matters here."""
    compared = {"base_model": scored(base), "base": scored(0.01), "expanded": scored(base / 2)}
    return {"id": str(number), "question": "which?", "gold": ["bats"], **scored(averaged), "compared": compared}


def answers(bench: ModuleType, rows: list[Json], papers: list[int]) -> Any:
    return bench.Answers(tuple(rows), tuple(map(str, papers)))


def test_the_paper_of_an_answer_is_told_by_its_id(bench: ModuleType, tmp_path: Path) -> None:
    options = write_data(tmp_path, [2, 1])
    answers = bench.answers_on(options.data, [row(1000, 0.5, 0.5), row(1, 0.5, 0.5), row(1002, 0.5, 0.5)])
    assert answers.papers == ("1", "0", "1")
    assert [answer_row["id"] for answer_row in answers.rows] == ["1000", "1", "1002"]


def test_the_table_of_small_rows(bench: ModuleType) -> None:
    compared = answers(bench, [row(i, 0.5, 0.75) for i in range(12)], list(range(12))).compared()
    text = bench.table("map, fold 0", compared)
    assert "### map, fold 0: 12 questions on 12 papers" in text
    assert "| base | 50.00 | 50.00 | 50.00 |  |  |  |" in text
    gain = "+25.00 (+25.00 to +25.00)"
    assert f"| averaged | 75.00 | 75.00 | 75.00 | {gain} | {gain} | {gain} |" in text
    assert "| expanded | 25.00 |" in text
    assert "12 are others than the base model's: 12 better in F1, 0 worse. Resampled: contexts." in text
    assert "cannot tell" not in text


def test_the_interval_of_a_difference_is_over_papers(bench: ModuleType) -> None:
    # Ten papers of one question gain 20 points, one of thirty loses 10: questions alone would be sure of a loss.
    rows = [row(i, 0.5, 0.7) for i in range(10)] + [row(i, 0.5, 0.4) for i in range(10, 40)]
    compared = answers(bench, rows, [*range(10), *[10] * 30]).compared()
    averaged = next(model for model in compared["models"] if model["name"] == "mean")
    interval = averaged["differences"]["f1"]
    assert interval["difference"] == pytest.approx((10 * 0.2 - 30 * 0.1) / 40)
    assert interval["high"] == pytest.approx(0.2)
    assert interval["low"] < -0.05


@pytest.mark.parametrize(("f1", "is_said"), [(0.199, True), (0.2, False)])
def test_a_base_model_that_answers_little_is_said_to_tell_nothing(bench: ModuleType, f1: float, is_said: bool) -> None:
    compared = answers(bench, [row(i, f1, 0.9) for i in range(12)], list(range(12))).compared()
    text = bench.table("map, fold 0", compared)
    assert ("F1 is 19.9, under 20: this model cannot tell the two apart" in text) == is_said


def test_folds_together_keep_their_papers_apart(bench: ModuleType) -> None:
    folds = {"0": answers(bench, [row(0, 0.2, 0.4)], [0]), "1": answers(bench, [row(9, 0.4, 0.4)], [0])}
    compared = bench.together(folds).compared()
    assert compared["contexts"] == compared["questions"] == 2
    assert {model["name"]: model["f1"] for model in compared["models"]}["base_model"] == pytest.approx(0.3)


def test_the_report_is_printed_and_written(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folds = {str(fold): answers(bench, [row(i, 0.5, 0.6) for i in range(2)], [0, 1]) for fold in range(2)}
    bench.print_report(argparse.Namespace(work=tmp_path, data=tmp_path / "covid.json"), {"map": folds})
    text = (tmp_path / "table.md").read_text()
    assert text == capsys.readouterr().out.removesuffix("\n")
    assert "### map, fold 1: 2 questions on 2 papers" in text
    assert "### map, folds 0, 1: 4 questions on 4 papers" in text
    written = json.loads((tmp_path / "table.json").read_text())
    assert written["settings"]["data"] == "covid.json"
    assert written["sets"]["map, folds 0, 1"]["questions"] == 4


def test_a_run_from_files_to_the_table_and_again(
    bench: ModuleType,
    tmp_path: Path,
    tiny_model: TinyModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tiny_model(name="start", initializer_range=0.1)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(" ".join(words) for words in sentences(400, 1)))
    data, general = qa_file(tmp_path / "papers.json", n=25), qa_file(tmp_path / "general.json", n=8, seed=1)
    files = ["--data", data, "--general", general, "--corpus", corpus, "--work", tmp_path / "work", "--model", model]
    settings = ["--folds", "2", "--questions", "4", "--epochs", "1", "--general-epochs", "1", "--max-length", "32"]
    monkeypatch.setattr(sys, "argv", ["covid_qa.py", *map(str, files), *settings])
    bench.main()
    first = capsys.readouterr()
    assert "### map, fold 2: 4 questions on 4 papers" in first.out
    fold = tmp_path / "work" / "fold-2"
    trained = json.loads((fold / "base" / "manifest.json").read_text())["inputs"]["model"]["source"]
    assert trained == str(tmp_path / "work" / "general")
    # The adapted model is that of the fold, and its own tokenizer says what the fold's model does.
    for row in map(json.loads, (fold / "answers-map" / "answers.jsonl").read_text().splitlines()):
        assert row["compared"]["base"]["answer"] == row["compared"]["base_model"]["answer"]
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "work").rglob("manifest.json")}
    assert len(times) == 2 + 1 + 4  # corpus and vectors, the general model, and what is made of it for the fold
    bench.main()
    assert capsys.readouterr().out == first.out
    assert {file: file.stat().st_mtime_ns for file in times} == times
