"""Questions from files of every layout, and what is said of broken ones."""

import csv
import gzip
import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.errors import InputError, MissingError
from greenadapt.progress import Silent
from greenadapt.tasks.questions import GoldAnswer, Question, locate, read_questions
from tests.conftest import Notes

CONTEXT = "The virus was isolated in 2012, in 2013 and in 2012."


def entry(name: Any = 7, answers: Any = None, **fields: Any) -> dict[str, Any]:
    answers = [{"text": "2012", "answer_start": 26}] if answers is None else answers
    return {"id": name, "question": "When?", "answers": answers, **fields}


def squad(*entries: Any, context: Any = CONTEXT) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "", "paragraphs": [{"context": context, "qas": list(entries)}]}]}


def read(path: Path, content: Any, notes: Notes | None = None, labelled: bool | None = True) -> list[Question]:
    text = content if isinstance(content, str) else json.dumps(content)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return read_questions(str(path), notes or Silent(), labelled=labelled)


ROW = Question("7", "When?", CONTEXT, (GoldAnswer("2012", 26),))
EXPECTED = replace(ROW, document="data[0].paragraphs[0]")


@pytest.mark.parametrize(("name", "indent"), [("a.json", 1), ("a.json.gz", None), ("a.jsonl", None)])
def test_squad_of_one_line_or_several(name: str, indent: int | None, tmp_path: Path) -> None:
    assert read(tmp_path / name, json.dumps(squad(entry()), indent=indent)) == [EXPECTED]


@pytest.mark.parametrize(("name", "answers"), [("a.json", None), ("a.jsonl", {"text": ["2012"], "answer_start": [26]})])
def test_json_lines_of_either_layout(name: str, answers: Any, tmp_path: Path) -> None:
    rows = [json.dumps({**entry(number, answers), "context": CONTEXT}) for number in (7, 8)]
    assert read(tmp_path / name, "\n".join(rows)) == [ROW, replace(ROW, id="8")]


def test_the_files_of_run_qa_are_the_rows_in_their_data(tmp_path: Path) -> None:
    """transformers' run_qa reads JSON by ``load_dataset("json", field="data")``; SQuAD 2 has empty lists."""
    answers = [{"text": ["2012"], "answer_start": [26]}, {"text": [], "answer_start": []}]
    rows = [{**entry(number, answer), "context": CONTEXT} for number, answer in enumerate(answers)]
    for indent in (None, 2):
        questions = read(tmp_path / "a.json", json.dumps({"version": "v2.0", "data": rows}, indent=indent))
        assert [replace(question, document="") for question in questions] == read(
            tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows))
        )
        assert [(question.document, question.impossible) for question in questions] == [
            ("data[0]", False), ("data[1]", True)
        ]  # fmt: skip


@pytest.mark.parametrize("answers", [["2012"], {"text": ["2012"]}, [{"text": "2012"}]])
def test_answers_without_a_start_are_looked_up_and_not_counted_as_wrong(answers: Any, tmp_path: Path) -> None:
    notes = Notes()
    assert read(tmp_path / "a.json", squad(entry(answers=answers)), notes) == [EXPECTED]
    assert notes.lines == []


def test_answers_in_a_cell_are_json(tmp_path: Path) -> None:
    answers = {"text": ["2012"], "answer_start": [47]}
    path = tmp_path / "a.csv"
    for content, start in ((json.dumps(answers), 47), ("2012", 26), ("{2012}", -1)):
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([["question", "context", "answers"], ["When?", CONTEXT, content]])
        assert [answer.start for answer in read_questions(str(path), Silent())[0].answers] == [start]


@pytest.mark.parametrize("flags", [(1, 0), ("True", "False"), ("true", "")])
def test_flags_as_json_sql_and_pandas_write_them(flags: tuple[Any, Any], tmp_path: Path) -> None:
    questions = read(tmp_path / "a.json", squad(*(entry(i, is_impossible=flag) for i, flag in enumerate(flags))))
    assert [question.impossible for question in questions] == [True, False]


def test_questions_without_answer(tmp_path: Path) -> None:
    flagged = entry(1, [], is_impossible=True, plausible_answers=[{"text": "2012", "answer_start": 26}])
    questions = read(tmp_path / "a.json", squad(flagged, entry(2, is_impossible=False)))
    assert [(question.impossible, len(question.answers)) for question in questions] == [(True, 0), (False, 1)]
    # The hub's copy has no flag.
    hub = {"id": "x", "question": "When?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}}
    assert read(tmp_path / "a.jsonl", hub)[0].impossible


def test_labels_are_read_where_there_are_some(tmp_path: Path) -> None:
    path, empty = tmp_path / "a.json", {"text": [], "answer_start": []}
    bare = {"question": "Who?"}
    entries = (entry(), bare, entry(2, empty), entry(3, empty, is_impossible=False))
    questions = read(path, squad(*entries), labelled=None)
    facts = [(question.is_labelled, question.impossible, len(question.answers)) for question in questions]
    assert facts == [(True, False, 1), (False, False, 0), (True, True, 0), (False, False, 0)]
    assert questions[1].id == f"{path}: data[0].paragraphs[0].qas[1]"
    # Test sets are given out with empty lists, and these say nothing.
    assert not any(question.is_labelled for question in read(path, squad(entry(1, empty), bare), labelled=None))
    flagged = read(path, squad(entry(1, empty), entry(2, empty, is_impossible=True)), labelled=None)
    assert [question.is_labelled for question in flagged] == [False, True]
    assert not any(question.is_labelled for question in read(path, squad(entry(), entry(2, empty)), labelled=False))


def test_what_contexts_are_called(tmp_path: Path) -> None:
    numbers = count()

    def paragraph(**fields: Any) -> dict[str, Any]:
        return {"context": CONTEXT, "qas": [entry(next(numbers))], **fields}

    articles = [
        {"paragraphs": [paragraph(document_id=630), paragraph(document_id="x"), paragraph(document_id=None)]},
        {"title": "Virus\ud800", "paragraphs": [paragraph(), paragraph(), paragraph(document_id=" ")]},
    ]
    assert [question.document for question in read(tmp_path / "a.json", {"data": articles})] == [
        "630", "x", "data[0].paragraphs[2]", *["Virus\ufffd"] * 3
    ]  # fmt: skip
    names = [{"title": "t"}, {"document": 4, "title": "t"}, {}, {"document_id": "d", "document": 4}]
    rows = "".join(json.dumps({**entry(next(numbers)), "context": CONTEXT, **name}) + "\n" for name in names)
    assert [question.document for question in read(tmp_path / "a.jsonl", rows)] == ["t", "4", "", "d"]


def test_repeated_ids_name_both_places(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(InputError, match=r"qas\[2\] has the id '7', as .*a\.json: .*qas\[1\] has: give each") as caught:
        read(path, squad(entry(1), entry(7), entry("7")))
    assert str(path) in caught.value.message


def test_wrong_places_are_corrected_and_counted(tmp_path: Path) -> None:
    notes = Notes()
    answers = [
        {"text": "2012", "answer_start": 24},
        {"text": "2012", "answer_start": 49},
        {"text": " 2013 ", "answer_start": 34},
        {"text": "\n2013\n", "answer_start": 34},
        {"text": "2014", "answer_start": 26},
        {"text": "2012", "answer_start": -1},
        {"text": "isolated", "answer_start": 14},
    ]
    [question] = read(tmp_path / "a.json", squad(entry(answers=answers)), notes)
    assert [(answer.text, answer.start) for answer in question.answers] == [
        ("2012", 26), ("2012", 47), (" 2013 ", 34), ("2013", 35), ("2014", -1), ("2012", 26), ("isolated", 14),
    ]  # fmt: skip
    assert len(notes.lines) == 1
    assert "of 7 answers 4 are not where" in notes.lines[0]
    assert "1 are not in their context" in notes.lines[0]


@given(st.text("ab ", max_size=12), st.integers(-2, 14), st.text("ab ", min_size=1, max_size=3))
def test_the_nearest_occurrence_is_taken(context: str, start: int, text: str) -> None:
    answer = locate(text, start, context)
    expected = next((part for part in (text, text.strip()) if part and part in context), None)
    if expected is None or not text.strip():
        assert answer == GoldAnswer(text, -1)
        return
    distances = {abs(i - max(start, 0)) for i in range(len(context)) if context.startswith(expected, i)}
    assert answer.text == expected == context[answer.start : answer.start + len(expected)]
    assert abs(answer.start - max(start, 0)) == min(distances)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in entry().items() if key != name}


BROKEN: list[tuple[Any, str]] = [
    (squad(entry(), entry(), without("id")), r"a\.json: data\[0\]\.paragraphs\[0\]\.qas\[2\]: no 'id'"),
    (squad(entry(answers=[{"text": 2012}])), r"qas\[0\]: 'answers' has .*2012"),
    (squad(entry(is_impossible="no")), "'is_impossible' is 'no'"),
    ('{\n "data": [\n  {"paragraphs": x}\n]}', "line 3, column 18 is not JSON"),
    ('{"question": "When?", "context": "x", "answers": []}\n{"question": }\n', "line 2, column 14 is not JSON"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_errors_name_the_location(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        read_questions(str(tmp_path / "a.json"), Silent())
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.json", content)
