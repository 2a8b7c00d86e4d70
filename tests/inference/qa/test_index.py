"""Questions put to the paragraphs that a search finds, in an index or in each document."""

import json
import math
import shutil
from pathlib import Path

import pytest

from greenadapt.config import QaConfig, ReadingOptions, RetrievalConfig
from greenadapt.inference.qa.answering import Answerer, QaRequest
from greenadapt.inference.qa.question_set import QuestionSources
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.store import TextSearch
from greenadapt.progress import Silent
from greenadapt.stages.index import index
from tests.conftest import Run, last_line
from tests.support.small_tasks import Json, lines, qa_file, read_json, sentences, session
from tests.support.small_texts import WORDS_OF_TEXT

pytestmark = pytest.mark.usefixtures("one_thread")
WHOLE = QaConfig(top=20)
QUESTION = "virus coronavirus"
TEXTS = ["\n\n".join(" ".join(" ".join(words) + "." for words in sentences(25, seed=10 * k + i)) for i in range(5))
         for k in range(2)]  # fmt: skip


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """JSON lines of two documents with titles."""
    rows = [{"id": f"p{i}", "title": f"Paper {i}", "text": text} for i, text in enumerate(TEXTS)]
    (tmp_path / "papers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "papers.jsonl"


@pytest.fixture
def index_of_papers(papers: Path, tmp_path: Path) -> Path:
    index(session(tmp_path, "px"), [str(papers)])
    return tmp_path / "px"


def rows_of(model: Path, sources: QuestionSources, config: QaConfig = WHOLE, **how: object) -> list[Json]:
    request = QaRequest(str(model), sources, config, ReadingOptions(max_length=64), retrieval=RetrievalConfig(**how))  # type: ignore[arg-type]
    return [*Answerer(request, Silent()).rows()]


def alone(model: Path, tmp_path: Path, context: str) -> list[Json]:
    """All answers in a text that is read whole."""
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": 1, "question": QUESTION, "context": context}))
    [row] = rows_of(model, QuestionSources(data=str(tmp_path / "one.jsonl")))
    return [*row["answers"]]


def test_answers_are_those_of_the_paragraphs_alone_at_their_place_in_the_document(
    model: Path, index_of_papers: Path, tmp_path: Path
) -> None:
    [row] = rows_of(model, QuestionSources(index=str(index_of_papers), question_texts=(QUESTION,)), passages=2)
    passages = Index(index_of_papers).search(QUESTION, top=2)
    assert passages[0].score > passages[1].score > 0
    expected: dict[tuple[str, str], tuple[float, str, int]] = {}
    for passage in passages:
        penalty = 5 * (1 - passage.score / passages[0].score)
        for answer in alone(model, tmp_path, passage.text):
            match = (answer["logit"] - penalty, passage.document, passage.start + answer["start"])
            key = passage.document, answer["answer"]
            expected[key] = max(match, expected.get(key, match))
    best = sorted(expected.values(), reverse=True)[:20]
    assert [answer["logit"] for answer in row["answers"]] == pytest.approx([logit for logit, *_ in best], rel=1e-4)
    assert [(answer["document"], answer["start"]) for answer in row["answers"]] == [(name, at) for _, name, at in best]
    for answer in row["answers"]:
        text = TEXTS[int(answer["document"][1:])]
        assert text[answer["start"] : answer["end"]] == answer["answer"]
        for name in ("sentence", "paragraph"):
            begin = answer[f"{name}_start"]
            assert text[begin : begin + len(answer[name])] == answer[name]
        assert answer["title"] == f"Paper {answer['document'][1:]}"


def test_of_each_document_only_its_best_paragraphs_are_read(model: Path, papers: Path, tmp_path: Path) -> None:
    sources = QuestionSources(documents=(str(papers),), question_texts=(QUESTION,))
    [row] = rows_of(model, sources, passages=2)
    expected: dict[tuple[str, str], float] = {}
    for name, text in zip(("p0", "p1"), TEXTS, strict=True):
        search = TextSearch(text, WORDS_OF_TEXT)  # the words of these texts are plain
        assert len(search.passages) > 2
        passages = search.find_best(QUESTION, 2)
        for passage in passages:
            penalty = 5 * (1 - passage.score / passages[0].score)
            for answer in alone(model, tmp_path, passage.text):
                key = name, answer["answer"]
                expected[key] = max(answer["logit"] - penalty, expected.get(key, -math.inf))
    best = sorted(expected.values(), reverse=True)[:20]
    assert [answer["logit"] for answer in row["answers"]] == pytest.approx(best, rel=1e-4)


def test_questions_of_data_are_put_to_the_index_and_scored(
    model: Path, papers: Path, index_of_papers: Path, tmp_path: Path, run_alone: Run
) -> None:
    data = qa_file(tmp_path / "data.json", 3)
    read = read_json(data)
    read["data"][0]["paragraphs"][0]["qas"][0]["question"] = "?"
    data.write_text(json.dumps(read))
    options = ("-m", model, "--data", data, "--index", index_of_papers, "--max-length", 64, "--passages", 1)
    options = (*options, "-o", "answers")
    last = json.loads(run_alone("qa", *options, "--json").stdout)
    rows = lines(tmp_path / "answers" / "answers.jsonl")
    assert (rows[0]["answer"], rows[0]["score"]) == ("", 0)  # no paragraph was found
    assert all(row["document"] in ("p0", "p1") for row in rows[1:])
    assert (last["status"], last["scores"]["questions"]) == ("done", 3)
    assert json.loads(run_alone("qa", *options, "--json").stdout)["status"] == "up to date"
    papers.write_text('{"id": "p9", "text": "the virus was isolated"}\n')
    shutil.rmtree(index_of_papers)
    run_alone("index", "--documents", papers, "-o", index_of_papers)
    assert "index changed" in last_line(run_alone("qa", *options, "--json", code=1))
