"""What the server answers, beside the same models called from Python; who may ask, and how much."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import greenadapt
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import ReadingOptions, RetrievalConfig
from greenadapt.errors import MissingError, ResourceError, UsageError
from greenadapt.server import models as served
from greenadapt.server.models import find_models
from greenadapt.tasks.base import Encoder
from tests.conftest import Run
from tests.support.small_served import HOST, LABELS, TEXT, application

VIEWS = ("mean", "base", "expanded")
DOCUMENTS = ["the virus was isolated", "a heart with tachycardia", "cell protein"]
JSON = {"content-type": "application/json"}


def close_to(value: Any, expected: Any) -> bool:
    """The same JSON, but for the last digits: texts in other company are computed in other batches."""
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(close_to(value[name], item) for name, item in expected.items())
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(close_to, value, expected))
    return value == (pytest.approx(expected, rel=1e-4) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("name", ["ner", "labels"])
def test_predictions_are_those_of_the_api_in_every_view(client: TestClient, models: Path, name: str) -> None:
    texts = [TEXT, "", "tachycardia"]
    by_view = {}
    for view in (None, *VIEWS):
        request = {"texts": texts, "model": name, **({"view": view} if view else {})}
        response = client.post("/predict", json=request).json()
        assert (response["model"], response["view"]) == (name, view or "mean")
        by_view[view] = response["predictions"]
        assert close_to(by_view[view], greenadapt.load(models / name, reading=ReadingOptions(view)).predict(texts))
    assert not close_to(by_view["base"], by_view["expanded"])
    # Labels that are markup stay text.
    assert name == "ner" or {*by_view[None][0]["probabilities"]} == {*LABELS}


def test_answers_are_those_of_the_api_and_the_best_of_all_documents(client: TestClient, models: Path) -> None:
    qa, question = greenadapt.load(models / "squad"), "what virus"
    request = {"question": question, "top": 3}
    response = client.post("/answer", json={**request, "context": TEXT}).json()
    assert close_to([{**answer, "document": 0} for answer in qa.answer(question, TEXT, top=3)], response["answers"])
    by_document = qa.answer(question, DOCUMENTS, top=3)
    best = sorted(
        (-answer["logit"], i, answer["answer"]) for i, answers in enumerate(by_document) for answer in answers
    )[:3]
    of_all = client.post("/answer", json={**request, "documents": DOCUMENTS}).json()
    assert [(answer["document"], answer["answer"]) for answer in of_all["answers"]] == [
        (i, text) for _, i, text in best
    ]


def test_a_question_has_at_most_half_of_what_the_model_reads_at_once(client: TestClient, models: Path) -> None:
    most = Encoder.of(Checkpoint(models / "squad")).max_length // 2
    request = {"context": TEXT, "model": "squad"}
    assert client.post("/answer", json={**request, "question": "?" * most}).status_code == 200
    refused = client.post("/answer", json={**request, "question": "?" * (most + 1)})
    assert (refused.status_code, f"{most + 1} pieces" in refused.json()["detail"]) == (413, True)


def test_a_question_without_a_text_is_put_to_the_index_as_qa_does(models: Path, run_alone: Run) -> None:
    pytest.importorskip("tantivy", reason="NOT TESTED: serve with an index, without tantivy")
    Path("papers").mkdir()
    for number, text in enumerate(DOCUMENTS):
        Path(f"papers/PMC{number}.txt").write_text(f"{text}.\n\nOf another virus.")
    run_alone("index", "--documents", "papers", "--out", "px")
    options = ("--question", "what virus", "--passages", 3, "--top", 4, "--json")
    row = json.loads(run_alone("qa", "-m", models / "squad", "--index", "px", *options).stdout)
    with TestClient(application(models, "squad", index="px", retrieval=RetrievalConfig(passages=3)), HOST) as client:
        assert client.get("/models").json()["index"]
        response = client.post("/answer", json={"question": "what virus", "top": 4}).json()
        empty = client.post("/answer", json={"question": "?!"}).json()
        fewer = client.post("/answer", json={"question": "what virus", "passages": 1}).json()
    assert len(response["passages"]) == 3
    assert len(fewer["passages"]) == 1
    for answer, expected in zip(response["answers"], row["answers"], strict=True):
        passage = response["passages"][answer["document"]]
        assert passage["text"][answer["start"] : answer["end"]] == answer["answer"] == expected["answer"]
        assert (passage["document"], passage["start"] + answer["start"]) == (expected["document"], expected["start"])
        assert answer["logit"] == pytest.approx(expected["logit"], rel=1e-4)
    assert (empty["passages"], empty["answers"][0]["start"]) == ([], None)


def test_models_are_described_and_named(client: TestClient, models: Path, two_tasks: Path) -> None:
    response = client.get("/models").json()
    assert {row["name"]: (row["kind"], row["views"]) for row in response["models"]} == {
        "ner": ("ner", [*VIEWS]),
        "labels": ("classification", [*VIEWS]),
        "squad": ("qa", [*VIEWS]),
    }
    assert not response["index"]
    with TestClient(application(two_tasks.parent, "many"), HOST) as several:
        for name in (row["name"] for row in several.get("/models").json()["models"]):
            response = several.post("/predict", json={"texts": [TEXT], "model": name}).json()
            task = name.removeprefix("many:")
            assert close_to(response["predictions"], greenadapt.load(two_tasks, task=task).predict([TEXT]))
    ner, reading = str(models / "ner"), greenadapt.config.ReadingOptions()
    assert [source.name for source in find_models([str(two_tasks), ner], reading, task)] == [name, "ner"]
    with pytest.raises(UsageError, match="several tasks"):
        find_models([ner], reading, task)
    with pytest.raises(UsageError, match="2 times"):
        find_models([ner, f"{models}/./ner"], reading, None)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("predict", {"texts": ["a"]}, 422, "ner, labels"),
        ("predict", {"texts": ["a" * 100_001], "model": "ner"}, 422, "100000"),
        ("predict", {"texts": [{"text": ["a"]}], "model": "ner"}, 400, "texts[0]"),
        ("answer", {"question": "a", "context": "b", "documents": ["b"]}, 422, "context and documents"),
        ("predict", b'{\n"texts": ' + b"[" * 100_000, 400, ""),
        ("predict", b" " * (1 << 20) + b"{}", 413, "bytes"),
        # To collect what is wrong with every entry would take up to a minute.
        ("predict", b'{"texts": [' + b"1," * 400_000 + b"1]}", 422, "texts"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_wrong_is_said_at_once_in_one_sentence(
    client: TestClient, path: str, body: Any, status: int, message: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    # With its length, and in pieces, without.
    for body_sent in (content, (content[i : i + 60_000] for i in range(0, len(content), 60_000))):
        begin = time.process_time()
        response = client.post(f"/{path}", content=body_sent, headers=JSON)
        assert time.process_time() - begin < 5
        [(name, sentence)] = response.json().items()
        assert (response.status_code, name) == (status, "detail")
        assert message in sentence
        assert len(response.content) < 300


ANY = st.text(st.characters() | st.sampled_from("\ud800\udfff\x00\u2028\U0001f9a0 <"), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["texts", "model", "view", "question", "context", "documents", "top", "text", "tokens"])
TEXTS = st.lists(ANY | st.dictionaries(FIELDS, ANY | st.lists(ANY)), max_size=4)
MODELS = st.sampled_from(["ner", "labels", "squad"])
SENSIBLE = st.fixed_dictionaries({}, optional={"texts": TEXTS, "model": MODELS, "question": ANY, "context": ANY})


@given(
    st.sampled_from(["/predict", "/answer"]),
    st.dictionaries(FIELDS, VALUES) | SENSIBLE | VALUES | st.binary(max_size=60),
)
def test_no_body_breaks_the_server(client: TestClient, path: str, body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = client.post(path, content=content, headers=JSON)
    assert response.status_code < 500
    assert response.status_code == 200 or [*response.json()] == ["detail"]


def test_only_a_known_name_and_json_are_answered(client: TestClient) -> None:
    for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:80"):
        assert client.get("/health", headers={"host": host}).status_code == 400, host
    for host in ("127.0.0.1:8000", "LOCALHOST", "[::1]:8000"):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    # A page from elsewhere can send text/plain without asking first.
    plain = client.post("/predict", content=b'{"texts": ["a"]}', headers={"content-type": "text/plain"})
    assert plain.status_code == 422
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    refused = client.options("/predict", headers=headers)
    assert refused.status_code == 405
    for response in (client.get("/"), refused, plain):
        assert "access-control-allow-origin" not in response.headers


def test_a_token_is_needed_for_models_and_predictions(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_SERVE_TOKEN", "0123456789abcdef")
    body = {"texts": ["a virus"]}
    with TestClient(application(models, "ner"), HOST) as guarded:
        for path in ("/", "/page.js", "/page.css", "/health"):
            assert guarded.get(path).status_code == 200
        for header in ("", "Bearer 0123456789abcdeg", "Basic 0123456789abcdef", "Bearer 0123456789abcdef\xe9"):
            response = guarded.post("/predict", json=body, headers={"authorization": header.encode("latin-1")})
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        assert guarded.get("/models").status_code == 401
        right = {"authorization": "bearer 0123456789abcdef"}
        assert guarded.post("/predict", json=body, headers=right).status_code == 200


def test_what_is_wrong_with_the_server_is_no_error_of_the_client(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(served.ServedModel, "predict", fail)
    memory, missing = ResourceError("the GPU's memory is full", "lower --max-tokens"), MissingError("no /a/file", "see")
    for error, status in ((memory, 503), (missing, 500)):
        response = client.post("/predict", json={"texts": ["a"], "model": "ner"})
        assert response.status_code == status
        assert str(error) not in response.text
        assert str(error) in capsys.readouterr().err
