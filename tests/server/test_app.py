"""What the server answers, beside the same models called from Python; who may ask, and how much."""

import json
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import greenadapt
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import RetrievalConfig
from greenadapt.errors import ResourceError, UsageError
from greenadapt.server import models as served
from greenadapt.server.models import find_models
from greenadapt.tasks.base import Encoder
from tests.conftest import Run
from tests.support.small_served import HOST, LABELS, TEXT, application
from tests.support.small_tasks import NEW

VIEWS = ("mean", "base", "expanded")
DOCUMENTS = ["the virus was isolated", "a heart with tachycardia", "cell protein"]
PAPER = "\n\n".join(f"{text}. " + "Of mice and of other hosts. " * 30 for text in DOCUMENTS)
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def guarded(models: Path) -> Iterator[TestClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GREENADAPT_SERVE_TOKEN", "0123456789abcdef")
        app = application(models, "ner")
    with TestClient(app, HOST) as client:
        yield client


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
    response = client.post("/predict", json={"texts": texts, "model": name, "compare": True}).json()
    assert (response["model"], response["view"]) == (name, "mean")
    for view in VIEWS:
        expected = greenadapt.load(models / name, pool=view).predict(texts)
        assert close_to(response["views"][view], expected)
        alone = client.post("/predict", json={"texts": texts, "model": name, "view": view}).json()
        assert close_to(alone["predictions"], expected)
    assert close_to(response["predictions"], response["views"]["mean"])
    assert not close_to(response["views"]["base"], response["views"]["expanded"])
    # Labels that are markup stay text.
    assert name == "ner" or {*response["predictions"][0]["probabilities"]} == {*LABELS}


def test_answers_are_those_of_the_api_and_the_best_of_all_documents(client: TestClient, models: Path) -> None:
    qa, question = greenadapt.load(models / "squad"), "what virus"
    request = {"question": question, "top": 3}
    response = client.post("/answer", json={**request, "context": TEXT}).json()
    assert close_to([{**answer, "document": 0} for answer in qa.answer(question, TEXT, top=3)], response["answers"])
    by_document = qa.answer(question, DOCUMENTS, top=3)
    best = sorted(
        (-answer["logit"], i, answer["answer"]) for i, answers in enumerate(by_document) for answer in answers
    )[:3]
    of_all = client.post("/answer", json={**request, "documents": DOCUMENTS, "compare": True}).json()
    assert [(answer["document"], answer["answer"]) for answer in of_all["answers"]] == [
        (i, text) for _, i, text in best
    ]
    assert {*of_all["views"]} == {*VIEWS}


def test_a_question_leaves_half_of_what_the_model_reads_at_once_to_the_context(
    client: TestClient, models: Path
) -> None:
    most = Encoder.of(Checkpoint.open(models / "squad")).max_length // 2
    request = {"context": TEXT, "model": "squad"}
    assert client.post("/answer", json={**request, "question": "?" * most}).status_code == 200
    refused = client.post("/answer", json={**request, "question": "?" * (most + 1)})
    assert (refused.status_code, f"{most + 1} pieces" in refused.json()["error"]) == (413, True)


def test_neighbours_are_the_rows_of_the_highest_cosine(client: TestClient, models: Path) -> None:
    checkpoint = Checkpoint.open(models / "squad")
    rows = np.asarray(checkpoint.embedding(), np.float64)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)  # that of the padding is zero
    first = len(rows) - len(NEW)
    cosines = rows[first:] @ rows[first + 1]
    expected = [NEW[i] for i in np.argsort(-cosines) if i != 1]
    response = client.post("/neighbours", json={"word": NEW[1], "top": 5, "model": "squad"}).json()
    assert response["is_added"]
    assert [neighbour["word"] for neighbour in response["added"]] == expected
    assert response["added"][0]["cosine"] == pytest.approx(np.sort(cosines)[-2], abs=1e-5)
    assert len(response["pieces"]) == 5
    assert not {neighbour["word"] for neighbour in response["pieces"]} & {"[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"}
    heart = client.post("/neighbours", json={"word": "Heart", "top": 1, "model": "squad"}).json()
    assert (heart["word"], heart["is_added"]) == ("heart", False)
    unknown = client.post("/neighbours", json={"word": "tachycardai", "model": "squad"})
    assert (unknown.status_code, "near: tachycardia" in unknown.json()["error"]) == (404, True)
    assert client.post("/neighbours", json={"word": "two words", "model": "squad"}).status_code == 400
    with_mark = b'\xef\xbb\xbf{"word": "heart", "model": "squad"}'
    assert client.post("/neighbours", content=with_mark, headers=JSON).status_code == 200


def test_a_question_without_a_text_is_put_to_the_index_as_qa_does(models: Path, run_alone: Run) -> None:
    pytest.importorskip("tantivy", reason="NOT TESTED: serve with an index, without tantivy")
    Path("papers").mkdir()
    for number, text in enumerate(DOCUMENTS):
        Path(f"papers/PMC{number}.txt").write_text(f"{text}.\n\nOf another virus.")
    run_alone("index", "--documents", "papers", "--out", "px")
    options = ("--question", "what virus", "--passages", 3, "--top", 4, "--json")
    row = json.loads(run_alone("qa", "-m", models / "squad", "--index", "px", *options).stdout)
    retrieval = RetrievalConfig(passages=3)
    limits = {"max_texts": 2, "max_chars": 12, "max_queue": 4}  # of what clients send: the index has more
    with TestClient(application(models, "squad", index="px", retrieval=retrieval, **limits), HOST) as client:
        assert client.get("/models").json()["index"]
        response = client.post("/answer", json={"question": "what virus", "top": 4}).json()
        empty = client.post("/answer", json={"question": "?!"}).json()
        fewer = client.post("/answer", json={"question": "what virus", "passages": 1}).json()
        assert client.post("/answer", json={"question": "what virus", "passages": 5}).status_code == 413
    assert len(response["passages"]) == 3
    assert len(fewer["passages"]) == 1
    for answer, expected in zip(response["answers"], row["answers"], strict=True):
        passage = response["passages"][answer["document"]]
        assert passage["text"][answer["start"] : answer["end"]] == answer["answer"] == expected["answer"]
        assert (passage["document"], passage["start"] + answer["start"]) == (expected["document"], expected["start"])
        assert answer["logit"] == pytest.approx(expected["logit"], rel=1e-4)
    assert (empty["passages"], empty["answers"][0]["start"]) == ([], None)


def test_the_best_passages_of_a_text_are_those_that_qa_reads(
    models: Path, run_alone: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tantivy", reason="NOT TESTED: passages of a text, without tantivy")
    Path("paper.txt").write_text(PAPER)
    options = ("--question", "what virus", "--passages", 2, "--top", 4, "--json")
    row = json.loads(run_alone("qa", "-m", models / "squad", "--context", "paper.txt", *options).stdout)
    question = {"question": "what virus", "top": 4, "passages": 2}
    with TestClient(application(models, "squad", max_texts=3, max_queue=5), HOST) as client:
        response = client.post("/answer", json={**question, "context": PAPER}).json()
        several = client.post("/answer", json={**question, "top": 20, "documents": ["A virus.", PAPER]}).json()
        empty = client.post("/answer", json={**question, "context": " "}).json()
        too_many = client.post("/answer", json={**question, "documents": [PAPER] * 3})
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        without = client.post("/answer", json={**question, "context": PAPER})
    for answer, expected in zip(response["answers"], row["answers"], strict=True):
        assert PAPER[answer["start"] : answer["end"]] == answer["answer"] == expected["answer"]
        assert (answer["document"], answer["start"]) == (0, expected["start"])
        assert answer["logit"] == pytest.approx(expected["logit"], rel=1e-4)
    assert {answer["document"] for answer in several["answers"]} == {0, 1}
    for answer in several["answers"]:
        assert ["A virus.", PAPER][answer["document"]][answer["start"] : answer["end"]] == answer["answer"]
    assert empty["answers"][0]["start"] is None
    assert (too_many.status_code, too_many.json()["error"][:24]) == (413, "6 passages would be read")
    assert (without.status_code, "leave out passages" in without.json()["error"]) == (422, True)


def test_a_server_without_an_index_reads_as_many_passages_as_it_was_told(models: Path, run_alone: Run) -> None:
    pytest.importorskip("tantivy", reason="NOT TESTED: passages of a text, without tantivy")
    question = {"question": "what virus", "top": 4, "context": PAPER}
    retrieval = RetrievalConfig(passages=1)
    with TestClient(application(models, "squad", retrieval=retrieval), HOST) as client:
        by_default = client.post("/answer", json=question).json()
    Path("papers.txt").write_text("A virus.")
    run_alone("index", "--documents", "papers.txt", "--out", "px")
    with TestClient(application(models, "squad", index="px", retrieval=retrieval), HOST) as client:
        whole = client.post("/answer", json=question).json()  # the number is that of the index
        by_request = client.post("/answer", json={**question, "passages": 1}).json()
    assert by_default == by_request
    assert by_default["answers"] != whole["answers"]


def test_models_are_described_and_named(client: TestClient, models: Path, two_tasks: Path) -> None:
    response = client.get("/models").json()
    views = list(VIEWS)
    assert {row["name"]: (row["kind"], row["views"], row["neighbours"]) for row in response["models"]} == {
        "ner": ("ner", views, True),
        "labels": ("classification", views, True),
        "squad": ("qa", views, True),
        "encoder": ("words", [], True),
    }
    assert all(row["example_word"] in NEW for row in response["models"])
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


def repeated(before: str, entry: str, after: str, size: int = 800_000) -> bytes:
    return (before + ",".join([entry] * (size // (len(entry) + 1))) + after).encode()


NAMES = ",".join(f'"{i}": 0' for i in range(80_000))


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("predict", {"texts": ["a"]}, 422, "ner, labels"),
        ("predict", {"texts": ["a"], "model": "squad"}, 404, "ner, labels"),
        ("predict", {"texts": []}, 422, "texts must have at least 1 item, not 0"),
        ("predict", {"texts": ["a", 5], "model": "ner"}, 422, "texts[1]"),
        ("predict", {"texts": ["a"] * 5, "model": "ner"}, 413, "4"),
        ("predict", {"texts": ["a" * 2001], "model": "ner"}, 413, "2,001"),
        ("predict", {"texts": ["a"], "model": "ner", "view": "both"}, 422, "view"),
        ("predict", {"texts": [{"text": ["a"]}], "model": "ner"}, 400, "texts[0]"),
        ("predict", {"texts": ["a"], "<b>": 1}, 422, "?b?"),
        ("predict", ["a"], 422, "object"),
        ("answer", {"context": "a"}, 422, "question"),
        ("answer", {"question": "a"}, 422, "index"),
        ("answer", {"question": "a", "context": "b", "documents": ["b"]}, 422, "context and documents"),
        ("answer", {"question": "a", "documents": ["b" * 2001]}, 413, "2,001"),
        ("neighbours", {"word": "a", "top": 10**9, "model": "ner"}, 422, "top"),
        ("nothing", {}, 404, "openapi"),
        ("predict", b"{", 400, "not JSON"),
        ("predict", b"", 422, ""),
        ("predict", b'{"texts": ["\xff"]}', 400, "UTF-8"),
        ("predict", b'{\n"texts": ' + b"[" * 100_000, 400, "nested too deeply at line 2"),
        ("predict", b'{"texts": ["\\ud800 a"]}', 400, "half a pair of surrogates, at line 1 column 1"),
        ("predict", b'{"texts": [' + b"9" * 10_000 + b"]}", 400, "too long"),
        ("predict", b'{"texts": [NaN]}', 422, "texts[0]"),
        ("predict", b" " * (1 << 20) + b"{}", 413, "bytes"),
        # To collect what is wrong with every entry would take up to a minute.
        ("predict", repeated('{"texts": [', "1", "]}"), 413, "400,000 entries, the most is 4"),
        ("predict", repeated('{"texts": [{"tokens": [', "1", "]}]}"), 422, "texts[0]"),
        ("predict", repeated('{"texts": [{"tokens": [', "{}", "]}]}"), 422, "texts[0]"),
        ("predict", repeated('{"model": "ner", "texts": [{"tokens": [', '""', "]}]}"), 413, "texts"),
        ("predict", repeated('{"texts": [{"tokens": [', '"a"', ", 1]}]}"), 422, "texts[0]"),
        ("predict", f'{{"texts": [{{{NAMES}}}]}}'.encode(), 413, "texts[0] has 80,000 names"),
        ("predict", f"{{{NAMES}}}".encode(), 413, "80,000 names"),
        ("predict", f'{{"texts": ["a"], "model": {{{NAMES}}}}}'.encode(), 413, "80,000 names"),
        ("answer", repeated('{"question": "a", "documents": [', "[]", "]}"), 413, "documents"),
        ("neighbours", repeated('{"word": [', "1", "]}"), 413, "word"),
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
        assert time.process_time() - begin < 2
        [(name, sentence)] = response.json().items()
        assert (response.status_code, name) == (status, "error")
        assert message in sentence
        assert "\n" not in sentence
        assert len(response.content) < 200


def test_the_pages_load_nothing_from_elsewhere(client: TestClient) -> None:
    for page in ("/", "/docs"):
        response = client.get(page)
        assert (response.status_code, response.headers["content-type"][:9]) == (200, "text/html")
        assert "default-src 'none'" in response.headers["content-security-policy"]
        loaded = re.findall(r'(?:src|href)="([^"#]+)"', response.text)
        loaded += [address for path in loaded for address in re.findall(r'from "([^"]+)"', client.get(path).text)]
        assert len(loaded) > 4
        for path in loaded:
            assert path.startswith("/")
            assert client.get(path).status_code == 200


ANY = st.text(st.characters() | st.sampled_from("\ud800\udfff\x00\u2028\U0001f9a0 <"), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    "texts model view compare question context documents passages top word text tokens".split()  # noqa: SIM905
)
MODELS = st.sampled_from(["ner", "labels", "squad", "encoder"])
TEXTS = st.lists(ANY | st.dictionaries(FIELDS, ANY | st.lists(ANY)), max_size=4)
SENSIBLE = st.fixed_dictionaries(
    {}, optional={"texts": TEXTS, "model": MODELS, "question": ANY, "context": ANY, "word": ANY}
)


@given(
    st.sampled_from(["/predict", "/answer", "/neighbours"]),
    st.dictionaries(FIELDS, VALUES) | SENSIBLE | VALUES | st.binary(max_size=60),
)
def test_no_body_breaks_the_server(client: TestClient, path: str, body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = client.post(path, content=content, headers=JSON)
    assert response.status_code < 500
    assert response.status_code == 200 or [*response.json()] == ["error"]


def test_only_a_known_name_and_json_are_answered(client: TestClient) -> None:
    for host in ("evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:80"):
        assert client.get("/health", headers={"host": host}).status_code == 421, host
    for host in ("127.0.0.1:8000", "LOCALHOST", "[::1]:8000"):
        assert client.get("/health", headers={"host": host}).status_code == 200, host
    plain = client.post("/predict", content=b'{"texts": ["a"]}', headers={"content-type": "text/plain"})
    assert plain.status_code == 415
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    refused = client.options("/predict", headers=headers)
    assert refused.status_code == 405
    for response in (client.get("/"), refused, plain):
        assert "access-control-allow-origin" not in response.headers
        assert "'unsafe-inline'" not in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"


def test_a_token_is_needed_for_all_but_the_page_and_health(guarded: TestClient) -> None:
    assert (
        guarded.get("/health").status_code == guarded.get("/").status_code == guarded.get("/page.js").status_code == 200
    )
    body = {"texts": ["a virus"]}
    invalid = ["", "Bearer", "Bearer 0123456789abcdeg", "Basic 0123456789abcdef", "Bearer 0123456789abcdef\xe9"]
    for header in invalid:
        response = guarded.post("/predict", json=body, headers={"authorization": header.encode("latin-1")})
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    for path in ("/models", "/metrics", "/openapi.json"):
        assert guarded.get(path).status_code == 401
    right = {"authorization": "bearer 0123456789abcdef"}
    assert guarded.post("/predict", json=body, headers=right).status_code == 200


def test_too_long_and_too_many_are_504_and_503(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*arguments: Any) -> Any:
        time.sleep(0.2)
        return predicted(*arguments)

    predicted = served.ServedModel.predict
    monkeypatch.setattr(served.ServedModel, "predict", slow)
    with TestClient(application(models, "ner", max_seconds=0.1, max_texts=2, max_queue=2), HOST) as client:
        late = client.post("/predict", json={"texts": ["a"]})
        assert (late.status_code, "0.1 s" in late.json()["error"]) == (504, True)
    app = application(models, "ner", max_texts=2, max_queue=2)
    with TestClient(app, HOST) as client:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(4) as threads:
            responses = list(threads.map(lambda _: client.post("/predict", json={"texts": ["a", "b"]}), range(4)))
    assert sorted({response.status_code for response in responses}) == [200, 503]
    assert all(response.headers["retry-after"] == "1" for response in responses if response.status_code == 503)


def test_what_is_wrong_with_the_server_is_no_error_of_the_client(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(*_: Any) -> Any:
        raise ResourceError("the GPU's memory is full", "lower --max-tokens")

    shutil.copytree(models / "ner", tmp_path / "moved")
    monkeypatch.setattr(served.ServedModel, "predict", no_memory)
    with TestClient(application(tmp_path, "moved"), HOST) as client:
        full = client.post("/predict", json={"texts": ["a"]})
        (tmp_path / "moved" / "config.json").unlink()
        gone = client.post("/neighbours", json={"word": "tachycardia"})
    assert (full.status_code, gone.status_code) == (503, 500)
    assert "--max-tokens" not in full.text
    assert "moved" not in gone.text
    log = capsys.readouterr().err
    assert "--max-tokens" in log
    assert "moved" in log


def test_connections_to_several_workers_are_closed_now_and_then(client: TestClient, models: Path) -> None:
    random.seed(1)
    with TestClient(application(models, "encoder", workers=2), HOST) as several:
        closed = [several.get("/health").headers.get("connection") == "close" for _ in range(60)]
    assert 0 < sum(closed) < 20
    assert not any("connection" in client.get("/health").headers for _ in range(60))


def test_metrics_and_openapi(client: TestClient) -> None:
    client.post("/predict", json={"texts": ["a", "b"], "model": "labels"})
    client.get("/such/a/path")
    lines = client.get("/metrics").text.splitlines()
    counted = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(counted['greenadapt_texts_total{model="labels"}']) >= 2
    assert float(counted['greenadapt_requests_total{path="/predict",status="200"}']) >= 1
    assert float(counted['greenadapt_requests_total{path="other",status="404"}']) >= 1
    assert float(counted["greenadapt_waiting_texts"]) == 0
    described = client.get("/openapi.json").json()
    assert {"/predict", "/answer", "/neighbours", "/models", "/health", "/metrics"} == {*described["paths"]}
    assert {"413", "422", "503", "504"} <= {*described["paths"]["/predict"]["post"]["responses"]}
