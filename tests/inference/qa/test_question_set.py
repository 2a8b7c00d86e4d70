"""What is asked of which contexts, in which order, and what is refused before work begins."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from greenadapt.errors import InputError, UsageError
from greenadapt.inference.qa.question_set import QuestionSet, QuestionSources, read_bare_questions, read_question_set
from greenadapt.progress import Silent
from greenadapt.tasks.questions import Question
from tests.inference.qa.test_documents import SQUAD, rows, write


def question_set(**sources: Any) -> QuestionSet:
    return read_question_set(QuestionSources(**{"sample_by": "document", **sources}), Silent())


def asked_of(inquired: QuestionSet) -> list[tuple[str, str]]:
    """Id of the question and name of the document, of each lookup."""
    return [(question.id, question.document) for question in inquired.lookups()]


def records(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, ...]:
    return (write(tmp_path / "b.txt", "of bats\n\n of mice"), write(tmp_path / "a.txt", "of camels"))


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """Standard input, which can be read once."""
    stream = io.BytesIO()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream, "utf-8"))
    return stream


def test_questions_on_one_context_are_looked_up_together_and_answered_in_order(tmp_path: Path) -> None:
    contexts = ["bats", "mice", "bats", "camels", "mice", "bats"]
    rows = [{"id": i, "question": f"q{i}", "context": context} for i, context in enumerate(contexts)]
    inquired = question_set(data=records(tmp_path / "data.jsonl", *rows))
    assert [*inquired.questions] == ["0", "1", "2", "3", "4", "5"]
    assert [question.context for question in inquired.questions.values()] == contexts
    assert [(question.id, question.question, question.context) for question in inquired.lookups()] == [
        (str(i), f"q{i}", contexts[i]) for i in (0, 2, 5, 1, 4, 3)
    ]
    assert [*inquired.n_lookups.values()] == [1] * 6
    assert [*inquired.lookups()] == [*inquired.lookups()]  # as often as they are wanted


def test_gold_answers_are_those_that_count(tmp_path: Path) -> None:
    answer = {"text": "the bats", "answer_start": 0}
    rows: list[dict[str, Any]] = [{"id": i, "question": "who", "context": "the bats fly"} for i in range(3)]
    rows[0]["answers"] = [answer, {"text": "  ", "answer_start": 0}]
    rows[1]["answers"] = []
    assert question_set(data=records(tmp_path / "a.jsonl", *rows)).golds().keys() == {"0", "1"}
    rows[1]["is_impossible"] = True
    golds = question_set(data=records(tmp_path / "b.jsonl", *rows)).golds()
    assert (golds["0"][0], golds["1"], "2" in golds) == ("the bats", [], False)


def test_each_question_is_asked_of_each_document(two: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"--context .*b\.txt holds 2 documents: give them with --documents"):
        question_set(documents=two, question_texts=("who",), single=True)
    inquired = question_set(documents=two, question_texts=("who", "when", "who"))
    assert [(name, question.question, question.context) for name, question in inquired.questions.items()] == [
        ("1", "who", ""),
        ("2", "when", ""),
        ("3", "who", ""),  # asked twice, answered twice
    ]
    assert asked_of(inquired) == [(str(i), name) for name in two for i in (1, 2, 3)]
    assert (inquired.n_contexts, [*inquired.n_lookups.values()]) == (2, [2, 2, 2])
    lookups = [*inquired.lookups()]
    assert [question.context for question in lookups[::3]] == ["of bats\n\n of mice", "of camels"]  # verbatim
    assert lookups[0].context is lookups[1].context  # so that it is tokenized once
    assert asked_of(inquired) == asked_of(inquired)
    assert inquired.golds() == {}


def test_nothing_is_given_twice_nor_data_by_a_pipe(two: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="not read from a pipe"):
        question_set(data="-")
    with pytest.raises(UsageError, match=r"b\.txt is given twice"):
        question_set(documents=(*two, two[0]), question_texts=("who",))
    with pytest.raises(UsageError, match="standard input is given twice"):
        question_set(documents=("-",), questions="-")


def test_a_document_from_standard_input_is_read_once_and_kept(stdin: io.BytesIO, two: tuple[str, ...]) -> None:
    stdin.write("of bäts\n".encode())
    stdin.seek(0)
    inquired = question_set(documents=(two[1], "-"), question_texts=("who",))
    assert stdin.read() == b""
    for _ in range(2):
        assert [question.context for question in inquired.lookups()] == ["of camels", "of bäts\n"]
    assert len({*asked_of(inquired)}) == 2


def test_what_is_broken_is_said_before_anything_is_looked_up(two: tuple[str, ...], tmp_path: Path) -> None:
    broken = write(tmp_path / "z.jsonl", '{"text": "bats"}\n{"text" "mice"}\n')
    with pytest.raises(InputError, match=r"z\.jsonl, line 2, column 9 is not JSON"):
        question_set(documents=(*two, broken), question_texts=("who",))
    twice = records(tmp_path / "twice.jsonl", *[{"id": 1, "question": "who", "context": "bats"}] * 2)
    with pytest.raises(InputError, match=r"twice\.jsonl:2 has the id '1', as .*twice\.jsonl:1 has"):
        question_set(data=twice)
    with pytest.raises(UsageError, match="--question number 2 is empty"):
        question_set(documents=two, question_texts=("who", " \n"))


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({}, "either questions with their contexts, or documents"),
        ({"index": "x", "documents": ("y",), "question_texts": ("z",)}, "own documents"),
    ],
)
def test_what_contradicts_itself_is_refused(sources: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        QuestionSources(**sources)


# Questions in files


def questions_of(path: Path, content: Any) -> list[Question]:
    return read_bare_questions(write(path, content), Silent())


def test_a_line_of_text_is_a_question(tmp_path: Path) -> None:
    path = tmp_path / "q.txt.gz"
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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", rows(*RECORDS, {"question": " "}), r"q\.jsonl:4: .* empty"),
        ("q.jsonl", {"id": 1, "context": "x"}, r"q\.jsonl:1: no 'question': it has: id, context"),
        ("q.json", SQUAD, r"q\.json:1: no 'question': it has: data"),
        ("q.txt", "\n \n", r"q\.txt has no questions"),
    ],
)  # fmt: skip
def test_what_are_no_questions(name: str, content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        questions_of(tmp_path / name, content)
