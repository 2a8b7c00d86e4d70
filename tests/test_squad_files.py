"""Questions from files of every layout, and what is said of broken ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.errors import InputError, MissingError
from greenadapt.progress import Silent
from greenadapt.tasks.squad_files import Answer, Question, locate, read_questions, unlabelled_question
from tests.conftest import Notes

CONTEXT = "The virus was isolated in 2012, in 2013 and in 2012."


def entry(name: Any = 7, answers: Any = None, **more: Any) -> dict[str, Any]:
    answers = [{"text": "2012", "answer_start": 26}] if answers is None else answers
    return {"id": name, "question": "When?", "answers": answers, **more}


def squad(*entries: Any, context: Any = CONTEXT) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "", "paragraphs": [{"context": context, "qas": list(entries)}]}]}


def read(path: Path, content: Any, notes: Notes | None = None) -> list[Question]:
    text = content if isinstance(content, str) else json.dumps(content)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, "utf-8")
    return read_questions(str(path), notes or Silent())


EXPECTED = Question("7", "When?", CONTEXT, (Answer("2012", 26),))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.jsonl"])
def test_squad_of_one_line_or_several(name: str, indent: int | None, tmp_path: Path) -> None:
    assert read(tmp_path / name, json.dumps(squad(entry()), indent=indent)) == [EXPECTED]


LAYOUTS: list[Any] = [
    [{"text": "2012", "answer_start": 26}],
    {"text": ["2012"], "answer_start": [26]},
]


@pytest.mark.parametrize("answers", LAYOUTS)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_json_lines_of_either_layout(name: str, answers: Any, tmp_path: Path) -> None:
    line = json.dumps({**entry(answers=answers), "context": CONTEXT})
    assert read(tmp_path / name, f"{line}\n{line}\n") == [EXPECTED, EXPECTED]


@pytest.mark.parametrize("answers", ["2012", ["2012"], {"text": ["2012"]}, [{"text": "2012"}]])
def test_answers_without_a_place_are_looked_up_and_not_counted_as_wrong(answers: Any, tmp_path: Path) -> None:
    notes = Notes()
    assert read(tmp_path / "a.json", squad(entry(answers=answers)), notes) == [EXPECTED]
    assert notes.lines == []


def test_a_table_has_its_columns(tmp_path: Path) -> None:
    rows = f'question,context,answers\nWhen?,"{CONTEXT}",2012\n'
    path = tmp_path / "a.csv"
    assert read(path, rows) == [Question(f"{path}:2", "When?", CONTEXT, (Answer("2012", 26),))]


def test_questions_without_answer(tmp_path: Path) -> None:
    flagged = entry(1, [], is_impossible=True, plausible_answers=[{"text": "2012", "answer_start": 26}])
    found = read(tmp_path / "a.json", squad(flagged, entry(2, is_impossible=False)))
    assert [(question.impossible, len(question.answers)) for question in found] == [(True, 0), (False, 1)]
    # The hub's copy has no flag.
    hub = {"id": "x", "question": "When?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}}
    assert read(tmp_path / "a.jsonl", hub)[0].impossible


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
    found = locate(text, start, context)
    wanted = next((one for one in (text, text.strip()) if one and one in context), None)
    if wanted is None or not text.strip():
        assert found == Answer(text, -1)
        return
    places = [place for place in range(len(context)) if context.startswith(wanted, place)]
    assert found.text == wanted
    assert found.start in places
    assert abs(found.start - max(start, 0)) == min(abs(place - max(start, 0)) for place in places)


def test_a_lone_surrogate_is_replaced_without_moving_anything(tmp_path: Path) -> None:
    notes = Notes()
    content = squad(entry(answers=[{"text": "2012", "answer_start": 2}]), context="\ud800 2012")
    [question] = read(tmp_path / "a.json", content, notes)
    assert (question.context, question.answers) == ("\ufffd 2012", (Answer("2012", 2),))
    assert "replaced" in notes.lines[0]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in entry().items() if key != name}


BROKEN: list[tuple[Any, str]] = [
    (squad(entry(), entry(), without("id")), r"a\.json: data\[0\]\.paragraphs\[0\]\.qas\[2\]: no 'id'"),
    (squad(without("question")), r"qas\[0\]: no 'question'"),
    (squad(without("answers")), r"qas\[0\]: no 'answers'"),
    (squad(entry(1.5)), "'id' is a float"),
    (squad(entry(True)), "'id' is a bool"),
    (squad(entry(answers=[{"text": 2012}])), r"qas\[0\]: 'answers' has .*2012"),
    (squad(entry(answers=[{"text": "2012", "answer_start": "26"}])), "'answers' has"),
    (squad(entry(answers={"text": ["2012"], "answer_start": [1, 2]})), "do not match"),
    (squad(entry(answers=26)), "'answers' has"),
    (squad(entry(is_impossible="no")), "'is_impossible' is 'no'"),
    (squad("x"), r"data\[0\]\.paragraphs\[0\]\.qas\[0\] is a str, not an object"),
    (squad(entry(), context=["x"]), "'context' is a list"),
    ({"data": {}}, "data is a dict, not a list"),
    ({"data": [{}]}, r"data\[0\]: no 'paragraphs'"),
    ({"data": []}, "has no questions"),
    ('{\n "data": [\n  {"paragraphs": x}\n]}', "line 3, column 18 is not JSON"),
    ('{\n "version": 1\n}', "no 'data'"),
    ('{"question": "When?", "context": "x", "answers": []}\n{"question": }\n', "line 2, column 14 is not JSON"),
    ('{"question": "When?", "context": "x"}', "a.json:1: no 'answers'"),
    ("", "has no rows"),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_files_say_where(content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.json", content)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        read_questions(str(tmp_path / "a.json"), Silent())


def test_a_question_to_answer() -> None:
    record = {"id": 3, "question": "When?", "context": CONTEXT, "more": 1}
    assert unlabelled_question(record, "in.jsonl:5") == Question("3", "When?", CONTEXT)
    del record["id"]
    assert unlabelled_question(record, "in.jsonl:5").id == "in.jsonl:5"
    del record["context"]
    with pytest.raises(InputError, match=r"in\.jsonl:5: no 'context'"):
        unlabelled_question(record, "in.jsonl:5")
