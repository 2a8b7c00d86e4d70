"""Questions put to the best paragraphs of their own contexts."""

import json
from pathlib import Path

import pytest

from greenadapt.config import QaConfig, ReadingOptions, RetrievalConfig
from greenadapt.inference.qa.answering import Answerer, QaRequest
from greenadapt.inference.qa.question_set import QuestionSources
from greenadapt.inference.search.store import TextSearch
from greenadapt.progress import Silent
from tests.conftest import Run
from tests.support.small_tasks import Json, lines, sentences
from tests.support.small_texts import WORDS_OF_TEXT

pytest.importorskip("tantivy", reason="NOT TESTED: passages of a text, without tantivy")
pytestmark = pytest.mark.usefixtures("one_thread")
QUESTION = "virus coronavirus"
TEXTS = ["\n\n".join(" ".join(" ".join(words) + "." for words in sentences(25, seed=10 * k + i)) for i in range(5))
         for k in range(2)]  # fmt: skip


@pytest.fixture
def papers(tmp_path: Path) -> str:
    """JSON lines of two documents."""
    rows = [{"id": f"p{i}", "text": text} for i, text in enumerate(TEXTS)]
    (tmp_path / "papers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "papers.jsonl")


def rows_of(model: Path, sources: QuestionSources, top: int = 20, **how: object) -> list[Json]:
    retrieval = RetrievalConfig(**how)  # type: ignore[arg-type]
    request = QaRequest(str(model), sources, QaConfig(top=top), ReadingOptions(max_length=64), retrieval=retrieval)
    return [*Answerer(request, Silent()).rows()]


def alone(model: Path, tmp_path: Path, context: str) -> list[Json]:
    """All answers in a text that is read whole."""
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": 1, "question": QUESTION, "context": context}))
    [row] = rows_of(model, QuestionSources(data=str(tmp_path / "one.jsonl")))
    return [*row["answers"]]


def test_of_each_document_only_its_best_paragraphs_are_read(model: Path, papers: str, tmp_path: Path) -> None:
    sources = QuestionSources(documents=(papers,), question_texts=(QUESTION, "patient"))
    request = QaRequest(str(model), sources, retrieval=RetrievalConfig(passages=2))
    question_set = Answerer(request, Silent()).question_set
    assert (question_set.n_lookups, question_set.n_contexts) == ({"1": 4, "2": 4}, 2)
    row = rows_of(model, sources, passages=2)[0]
    expected: dict[tuple[str, str], tuple[float, str, int]] = {}
    for name, text in zip(("p0", "p1"), TEXTS, strict=True):
        search = TextSearch(text, WORDS_OF_TEXT)  # the words of these texts are plain
        assert len(search.passages) > 2
        best_score = search.best(QUESTION, 1)[0].score
        for passage in search.best(QUESTION, 2):
            penalty = 5 * (1 - passage.score / best_score)
            for answer in alone(model, tmp_path, passage.text):
                match = (answer["logit"] - penalty, name, passage.start + answer["start"])
                expected[name, answer["answer"]] = max(match, expected.get((name, answer["answer"]), match))
    best = sorted(expected.values(), reverse=True)[:20]
    assert [answer["logit"] for answer in row["answers"]] == pytest.approx([logit for logit, *_ in best], rel=1e-4)
    assert [(answer["document"], answer["start"]) for answer in row["answers"]] == [(name, at) for _, name, at in best]
    for answer in row["answers"]:
        text = TEXTS[int(answer["document"][1:])]
        assert text[answer["start"] : answer["end"]] == answer["answer"]
        assert text[answer["paragraph_start"] :].startswith(answer["paragraph"])


def test_questions_of_data_are_scored_kept_and_the_same_from_python(
    model: Path, tmp_path: Path, run_alone: Run
) -> None:
    answers = [{"text": TEXTS[0][:9], "answer_start": 0}]
    questions = [QUESTION, "patient", QUESTION, "?"]
    rows: list[Json] = [
        {"id": i, "question": question, "context": TEXTS[i // 2]} for i, question in enumerate(questions)
    ]
    for row in rows[:2]:
        row["answers"] = answers
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("-m", model, "--data", data, "--max-length", 64, "-o", "answers", "--json")
    result = json.loads(run_alone("qa", *options, "--passages", 2).stdout)
    assert (result["status"], result["config"]["passages"], result["scores"]["questions"]) == ("done", 2, 2)
    answered = lines(tmp_path / "answers" / "answers.jsonl")
    assert [row["id"] for row in answered] == ["0", "1", "2", "3"]
    assert json.loads(run_alone("qa", *options, "--passages", 2).stdout)["status"] == "up to date"
    assert "passages" in run_alone("qa", *options, "--passages", 3, code=1).stderr
