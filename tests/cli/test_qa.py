"""``greenadapt qa`` as people and pipelines start it: JSON lines, the view on a terminal, files for scorers, errors."""

import io
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torchmetrics.text import SQuAD

from greenadapt.cli import app
from tests.conftest import Run, json_lines, last_line
from tests.support.small_tasks import TinyModel, adapted, lines, qa_file, read_json, sentences

pytestmark = pytest.mark.usefixtures("one_thread")
QA = "BertForQuestionAnswering"
ANSWER = ["answer", "start", "end", "score", "logit", "document", "sentence", "sentence_start"]
SCORES = ["em", "f1", "substr"]
SHORT = ("--max-length", 32)


@pytest.fixture
def run(run_alone: Run) -> Run:
    """Runs ``qa`` alone."""
    return partial(run_alone, "qa")


@pytest.fixture
def model(tiny_model: TinyModel) -> Path:
    return adapted(tiny_model, architecture=QA)


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    path = tmp_path / "paper.txt"
    path.write_text("\n".join(" ".join(words) + "." for words in sentences(12, seed=3)), "utf-8")
    return path


class Screen(io.StringIO):
    """A terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: object, **environment: str) -> str:
    """What ``qa`` writes to a terminal."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "80", **environment}.items():
        monkeypatch.setenv(name, value)
    app(["qa", *map(str, arguments)], standalone_mode=False)
    return screen.getvalue()


def test_json_lines_and_after_them_the_scores(run: Run, model: Path, tmp_path: Path) -> None:
    data = qa_file(tmp_path / "data.json", 3)
    *rows, last = json_lines(run("-m", model, "--data", data, *SHORT, "--top", 2))
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    for row in rows:
        assert [*row] == ["id", "question", *ANSWER, *SCORES, "answers", "gold"]
        assert [[*answer] for answer in row["answers"]] == [ANSWER, ANSWER]
        assert {name: row[name] for name in ANSWER} == row["answers"][0]
        assert row["document"] == f"data[0].paragraphs[{row['id']}]"
    assert [*last] == ["scores"]
    assert (last["scores"]["questions"], last["scores"]["contexts"]) == (3, 3)


def test_a_comparison_is_in_each_row_and_in_the_last_line(run: Run, model: Path, tmp_path: Path) -> None:
    command = ("-m", model, "--data", qa_file(tmp_path / "data.json", 3), *SHORT, "--compare", model.parent / "base")
    *rows, last = json_lines(run(*command, "--no-answer"))
    for row in rows:
        assert [*row] == ["id", "question", *ANSWER, *SCORES, "null_odds", "answers", "gold", "compared"]
        assert sorted(row["compared"]) == ["base", "base_model", "expanded"]
        assert all([*answer] == [*ANSWER, *SCORES] for answer in row["compared"].values())
    assert [*last] == ["scores", "comparison"]
    names = [row["name"] for row in last["comparison"]["models"]]
    assert names == ["base_model", "base", "expanded", "mean"]


@pytest.mark.slow
def test_a_document_and_questions(run: Run, model: Path, paper: Path, tmp_path: Path) -> None:
    ask = ("-m", model, *SHORT, "-q", "what virus", "--question", "the heart")
    from_file = run(*ask, "--context", "paper.txt")
    rows = json_lines(from_file)  # without gold answers no line with scores
    assert [(row["id"], row["question"]) for row in rows] == [("1", "what virus"), ("2", "the heart")]
    for row in rows:
        assert [*row] == ["id", "question", *ANSWER, "answers"]
        assert row["document"] == "paper.txt"
        assert paper.read_text("utf-8")[row["start"] : row["end"]] == row["answer"] != ""
    (tmp_path / "q.jsonl").write_text('{"id": "v", "question": "what virus"}\n{"question": "the heart"}\n')
    answers = json_lines(
        run("-m", model, *SHORT, "--documents", "paper.txt", "--sample-by", "document", "--questions", "q.jsonl")
    )
    assert [(row["id"], row["answer"]) for row in answers] == [
        (name, row["answer"]) for name, row in zip(("v", "q.jsonl:2"), rows, strict=True)
    ]


@pytest.mark.slow
def test_the_view_on_a_terminal(run: Run, model: Path, paper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("-m", model, "--context", paper.name, "-q", "what virus", *SHORT, "--max-answer-chars", 30)
    (row,) = json_lines(run(*command, "--top", 3))
    view = on_terminal(monkeypatch, *command, "--top", 3)
    assert view.startswith("\x1b[1mwhat virus\x1b[0m\n  ")
    assert f"\x1b[1;32m{' '.join(row['answer'].split())}\x1b[0m" in on_terminal(monkeypatch, *command, COLUMNS="900")
    plain = re.sub(r"\x1b\[[\d;]*m", "", view)
    assert all(line.startswith("  ") for line in plain.splitlines()[1:] if line)
    text = " ".join(plain.split())
    assert " ".join(row["sentence"].split()) in text
    for answer in row["answers"][1:]:
        assert f"{' '.join(answer['answer'].split())} ({100 * answer['score']:.0f} %, paper.txt)" in text
    assert "{" not in plain
    assert json.loads(on_terminal(monkeypatch, *command, "--json"))["answer"] == row["answer"]


@pytest.mark.slow
def test_the_answer_is_marked_without_styles(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "the heart \x1b[2J of the virus"
    (tmp_path / "a.txt").write_text(text)
    command = ("-m", model, "--context", "a.txt", "-q", "what", "--max-answer-chars", 5)
    (row,) = json_lines(run(*command))
    before, answer, after = text[: row["start"]], row["answer"], text[row["end"] :]
    assert 0 < len(answer) <= 5
    shows = on_terminal(monkeypatch, *command, TERM="dumb")
    assert "\x1b" not in shows
    marked = f"{before}[[{answer}]]{after}".replace("\x1b", "\ufffd")
    assert shows.splitlines()[:2] == ["what", f"  {marked}  ({100 * row['score']:.0f} %, a.txt)"]
    coloured = on_terminal(monkeypatch, *command)
    assert "[[" not in coloured
    assert "\x1b[2J" not in coloured


def test_scores_and_comparison_on_a_terminal(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = qa_file(tmp_path / "data.json", 6)
    command = ("-m", model, "--data", data, *SHORT, "--compare", model.parent / "base")
    view = re.sub(r"\x1b\[[\d;]*m", "", on_terminal(monkeypatch, *command, COLUMNS="120"))
    assert "Scores in percent: 6 questions on 6 contexts; questions resampled" in view
    assert re.search(r"answers of +F1 +95 % interval +difference", view)
    assert view.count("  gold: tachycardia") >= 6
    assert "both tokenizers, averaged" in view
    assert "of 6 answers differ from the base model's" in view


@pytest.mark.slow
def test_scores_are_those_of_squads_scorer(run: Run, model: Path, tmp_path: Path) -> None:
    data = qa_file(tmp_path / "data.json", 9, impossible=True)
    command = ("-m", model, "--data", data, *SHORT, "--no-answer")
    *rows, last = json_lines(run(*command))
    answers = {row["id"]: row["answer"] for row in rows}
    golds = {row["id"]: row["gold"] for row in rows if row["gold"]}
    scorer = SQuAD()
    scorer.update(
        [{"id": name, "prediction_text": answers[name]} for name in golds],
        [{"id": name, "answers": {"text": texts, "answer_start": [0]}} for name, texts in golds.items()],
    )
    theirs, ours = scorer.compute(), last["scores"]["has_answer"]
    assert 100 * ours["em"] == pytest.approx(float(theirs["exact_match"]))
    assert 100 * ours["f1"] == pytest.approx(float(theirs["f1"]))


@pytest.mark.slow
def test_a_result_is_kept_and_found_again(run: Run, model: Path, tmp_path: Path) -> None:
    command = ("-m", model, "--data", qa_file(tmp_path / "data.json", 4), *SHORT, "-o", "run")
    report = json.loads(run(*command, "--json").stdout)
    assert (report["stage"], report["status"], report["folder"]) == ("qa", "done", str(tmp_path / "run"))
    assert report["counts"]["questions"] == 4
    assert report["scores"] == read_json(tmp_path / "run" / "scores.json")["scores"]
    printed = json_lines(run(*command[:-2]))
    assert [row["answer"] for row in lines(tmp_path / "run" / "answers.jsonl")] == [
        row["answer"] for row in printed[:-1]
    ]
    again = run(*command, "--max-tokens", 64).stdout
    assert "Scores in percent: 4 questions on 4 contexts" in again
    assert "qa: up to date; questions 4" in again
    refused = last_line(run(*command, "--top", 2, code=1))
    assert "holds another result (top: 1 → 2)" in refused


def test_what_is_odd_is_answered_and_said(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the virus in the blood")
    long = run("-m", model, "--context", "a.txt", "-q", "heart " * 300)
    assert json_lines(long)[0]["answer"]
    assert re.search(r"^warning: questions longer than the \d+ pieces .*: 1; .* 1 with 300$", long.stderr, re.MULTILINE)
    (tmp_path / "word.txt").write_text("x" * 5000)
    word = run("-m", model, "--context", "word.txt", "-q", "what")
    assert (json_lines(word)[0]["answer"], json_lines(word)[0]["start"]) == ("", None)
    assert "without any possible answer: 1, such as 1; " in last_line(word)


FILES = {
    "a.txt": "the virus in the blood",
    "two.jsonl": '{"text": "a"}\n{"text": "b"}\n',
    "dup.json": json.dumps(
        {"data": [{"paragraphs": [{"context": "a", "qas": [{"id": i, "question": "x"} for i in (1, 1)]}]}]}
    ),
}
DOCUMENT = ("--context", "a.txt")
ASK = ("-q", "what")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--context", "none.txt", *ASK), 1, "none.txt does not exist"),
        (("--context", "two.jsonl", "--field", "body", *ASK), 1, "two.jsonl:1 has no field body, it has: text"),
        ((*DOCUMENT, "--documents", "a.txt", *ASK), 2, "--context and --documents exclude each other"),
        (DOCUMENT, 2, "need questions on the documents"),
        (("--data", "dup.json"), 1, "qas[1] has the id '1', as dup.json: data[0].paragraphs[0].qas[0] has"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    run: Run, model: Path, tmp_path: Path, options: tuple[Any, ...], code: int, message: str
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    assert message in last_line(run("-m", model, *options, code=code, stdin="the virus"))


def test_no_model(run: Run, tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "a.txt").write_text("the virus")
    for name, message in (
        ("some-one/no-such-model", "no model some-one/no-such-model here"),
        (tiny_model(), "is not a fine-tuned model: it has no task.json"),
    ):
        assert message in last_line(run("-m", name, *DOCUMENT, *ASK, code=1))
