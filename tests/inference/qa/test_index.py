"""Questions put to the paragraphs that a search in an index finds."""

import json
import shutil
from pathlib import Path

import pytest

from greenadapt.config import QaConfig, ReadingOptions, RetrievalConfig
from greenadapt.inference.qa.answering import Answerer, QaRequest
from greenadapt.inference.qa.question_set import QuestionSources
from greenadapt.inference.search.index import Index
from greenadapt.progress import Silent
from greenadapt.stages.index import index
from tests.conftest import Run, last_line
from tests.support.small_tasks import Json, lines, qa_file, read_json, sentences, session

pytestmark = pytest.mark.usefixtures("one_thread")
WHOLE = QaConfig(top=20)


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """JSON lines of three documents with titles."""
    rows = [
        {
            "id": f"p{i}",
            "title": f"Paper {i}",
            "text": "\n".join(" ".join(words) + "." for words in sentences(9, seed=i)),
        }
        for i in range(3)
    ]
    (tmp_path / "papers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index(session(tmp_path, "px"), [str(tmp_path / "papers.jsonl")])
    return tmp_path / "px"


def rows_of(model: Path, sources: QuestionSources, config: QaConfig = WHOLE, **how: object) -> list[Json]:
    request = QaRequest(str(model), sources, config, ReadingOptions(max_length=64), retrieval=RetrievalConfig(**how))  # type: ignore[arg-type]
    return [*Answerer(request, Silent()).rows()]


def test_answers_are_those_of_the_paragraphs_alone_at_their_place_in_the_document(
    model: Path, papers: Path, tmp_path: Path
) -> None:
    question = "virus coronavirus"
    [row] = rows_of(model, QuestionSources(index=str(papers), question_texts=(question,)), passages=2)
    passages = Index(papers).search(question, top=2)
    assert passages[0].score > passages[1].score > 0
    texts = {line["id"]: line["text"] for line in lines(tmp_path / "papers.jsonl")}
    expected = []
    for passage in passages:
        record = {"id": 1, "question": question, "context": passage.text}
        (tmp_path / "one.jsonl").write_text(json.dumps(record))
        penalty = 5 * (1 - passage.score / passages[0].score)
        [alone] = rows_of(model, QuestionSources(data=str(tmp_path / "one.jsonl")))
        expected += [
            (answer["logit"] - penalty, passage.document, passage.start + answer["start"])
            for answer in alone["answers"]
        ]
    expected = sorted(expected, reverse=True)[:20]
    assert [answer["logit"] for answer in row["answers"]] == pytest.approx([logit for logit, *_ in expected], rel=1e-4)
    assert [(answer["document"], answer["start"]) for answer in row["answers"]] == [
        (name, at) for _, name, at in expected
    ]
    for answer in row["answers"]:
        text = texts[answer["document"]]
        assert text[answer["start"] : answer["end"]] == answer["answer"]
        for name in ("sentence", "paragraph"):
            begin = answer[f"{name}_start"]
            assert text[begin : begin + len(answer[name])] == answer[name]
        assert answer["title"] == f"Paper {answer['document'][1:]}"


def test_questions_of_data_are_put_to_the_index_and_scored(
    model: Path, papers: Path, tmp_path: Path, run_alone: Run
) -> None:
    data = qa_file(tmp_path / "data.json", 3)
    read = read_json(data)
    read["data"][0]["paragraphs"][0]["qas"][0]["question"] = "?"
    data.write_text(json.dumps(read))
    options = ("-m", model, "--data", data, "--index", papers, "--max-length", 64, "--passages", 1, "-o", "answers")
    last = json.loads(run_alone("qa", *options, "--json").stdout)
    rows = lines(tmp_path / "answers" / "answers.jsonl")
    assert (rows[0]["answer"], rows[0]["score"]) == ("", 0)  # no paragraph was found
    assert all(row["document"] in ("p0", "p1", "p2") for row in rows[1:])
    assert (last["status"], last["scores"]["questions"]) == ("done", 3)
    assert json.loads(run_alone("qa", *options, "--json").stdout)["status"] == "up to date"
    (tmp_path / "papers.jsonl").write_text('{"id": "p9", "text": "the virus was isolated"}\n')
    shutil.rmtree(papers)
    run_alone("index", "--documents", tmp_path / "papers.jsonl", "-o", papers)
    assert "index changed" in last_line(run_alone("qa", *options, "--json", code=1))
