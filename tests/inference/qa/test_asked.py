"""Questions that are asked of documents, and what is said of broken ones."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from greenadapt.errors import InputError, MissingError
from greenadapt.inference.qa.inquiry import read_asked
from greenadapt.progress import Silent
from greenadapt.tasks.questions import Question
from tests.conftest import Notes
from tests.inference.qa.test_documents import SQUAD, rows, write


def questions_of(path: Path, content: Any) -> list[Question]:
    return read_asked(write(path, content), Silent())


@pytest.mark.parametrize("name", ["q.txt", "q.txt.gz", "q"])
def test_a_line_of_text_is_a_question(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert questions_of(path, "\ufeff\n When was it? \r\n\n[1] or {2}?") == [
        Question(f"{path}:2", "When was it?", ""), Question(f"{path}:4", "[1] or {2}?", "")
    ]  # fmt: skip


RECORDS = [
    {"id": 7, "question": "When?"},
    {"text": " Where? ", "id": None},
    {"id": "x", "question": "?", "text": "no"},
]


def test_records_with_questions(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    for name in ("q.jsonl", "q.txt"):
        path = tmp_path / name
        expected = [Question("7", "When?", ""), Question(f"{path}:3", " Where? ", ""), Question("x", "?", "")]
        assert questions_of(path, rows(RECORDS[0]) + "\n" + rows(*RECORDS[1:])) == expected
    path = tmp_path / "q.json"
    expected[1] = Question(f"{path}, entry 2", " Where? ", "")
    assert questions_of(path, RECORDS) == expected
    assert questions_of(path, json.dumps(RECORDS, indent=1)) == expected
    assert questions_of(tmp_path / "q.csv", "question,id\nWho?,5\n") == [Question("5", "Who?", "")]


def test_questions_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def piped(content: str) -> None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))

    piped("When?\n")
    assert read_asked("-", Silent()) == [Question("standard input:1", "When?", "")]
    piped("[\n" + json.dumps({"question": "Who?", "id": "a"}) + "]")
    assert read_asked("-", Silent()) == [Question("a", "Who?", "")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", rows(*RECORDS, {"question": " "}), r"q\.jsonl:4: .* empty"),
        ("q.jsonl", rows(*RECORDS, {"id": "7", "text": "?"}), r"q\.jsonl:4 has the id '7', as .*q\.jsonl:1 has: give"),
        ("q.jsonl", {"id": 1, "context": "x"}, r"q\.jsonl:1: no 'question': it has: id, context"),
        ("q.jsonl", {"question": ["x"]}, r"q\.jsonl:1: the question is a list, not a string"),
        ("q.jsonl", {"question": "x", "id": 1.5}, r"q\.jsonl:1: 'id' is a number with a fraction, not a string"),
        ("q.jsonl", rows({"question": "x"}) + "{", r"q\.jsonl, line 2, column 2 is not JSON"),
        ("q.jsonl", "When?", r"q\.jsonl, line 1, column 1 is 'W', not the start of an object"),
        ("q.json", ["When?"], r"q\.json, entry 1 is a string, not an object"),
        ("q.txt", ["When?"], r"q\.txt, entry 1 is a string, not an object"),
        ("q.json", SQUAD, r"q\.json is SQuAD's JSON, questions with their contexts: give it with --data"),
        ("q.json", json.dumps(SQUAD, indent=1), r"q\.json is SQuAD's JSON"),
        ("q.txt", "\n \n", r"q\.txt has no questions"),
        ("q.jsonl", "", r"q\.jsonl has no questions"),
        ("q.txt", "When\0?", r"q\.txt is not text"),
    ],
)  # fmt: skip
def test_what_are_no_questions(name: str, content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        questions_of(tmp_path / name, content)


def test_a_missing_file_of_questions(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"q\.txt does not exist"):
        read_asked(str(tmp_path / "q.txt"), Silent())
    with pytest.raises(InputError, match="cannot be read"):
        read_asked(str(tmp_path), Silent())


def test_broken_characters_of_questions_are_said(tmp_path: Path) -> None:
    notes = Notes()
    source = write(tmp_path / "q.txt", b"Wh\xffn?\n")
    assert [question.question for question in read_asked(source, notes)] == ["Wh\ufffdn?"]
    assert notes.warnings == [f"{source}: 1 byte sequence or character is not UTF-8, replaced by U+FFFD"]
