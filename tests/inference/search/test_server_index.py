"""An index on a search server: what is sent, what a broken run leaves, and what is said when the server refuses.

The server is a stand-in, see ``search_server``: neither OpenSearch nor Elasticsearch was at hand.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import greenadapt
from greenadapt.cli import app
from greenadapt.errors import GreenadaptError, InputError, MissingError, ServerError, UsageError
from greenadapt.inference.search.index import Index
from tests.conftest import Run, last_line
from tests.support.search_server import SearchServer, search_server
from tests.support.small_tasks import TinyModel, adapted, sentences

pytestmark = pytest.mark.usefixtures("one_thread")
Json = dict[str, Any]
WHOLE = "--sample-by", "document"
SECRET = "user:pass-word-9"


@pytest.fixture
def server() -> Iterator[SearchServer]:
    with search_server() as made:
        yield made


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    (tmp_path / "papers").mkdir()
    for number in range(3):
        blocks = [" ".join(words) + "." for words in sentences(6, seed=number)]
        (tmp_path / "papers" / f"{number}.txt").write_text("\n\n".join(blocks))
    return tmp_path / "papers"


@pytest.fixture
def index(run_alone: Run, server: SearchServer, papers: Path) -> Callable[..., Json]:
    """Runs ``index`` of the papers on the server."""

    def run(*options: object, code: int = 0) -> Any:
        where = ("--documents", papers, "--search", f"{server.address}/papers", "--paragraph-chars", 100)
        result = run_alone("index", *WHOLE, *where, *options, "--json", code=code)
        return last_line(result) if code else json.loads(result.stdout)

    return run


def changes(row: Json) -> tuple[int, ...]:
    return tuple(row["counts"][name] for name in ("added", "changed", "removed", "unchanged"))


def test_what_was_written_in_part_is_written_again_and_old_paragraphs_never_stay(
    index: Callable[..., Json], server: SearchServer, papers: Path, run_alone: Run
) -> None:
    index()
    stored = server.indexes["papers"]
    whole = dict(stored.visible)
    for name in [name for name, one in whole.items() if one["passage"]["document"].endswith("/0.txt")][1:]:
        del stored.latest[name]  # as after a kill between two requests
    assert changes(index()) == (0, 1, 0, 2)
    assert stored.visible == whole
    text = (papers / "1.txt").read_text()
    (papers / "1.txt").write_text(f"{text}\n\nAn aardvark.")
    server.instead = lambda _, path: (403, '{"error": "stopped"}') if path.endswith("_delete_by_query") else None
    assert "stopped" in index(code=1)  # the new paragraphs are there, and the old ones still
    found = run_alone("search", "--search", f"{server.address}/papers", "aardvark", "--json")
    assert "not finished" in found.stderr
    assert json.loads(found.stdout)["document"].endswith("1.txt")
    server.instead = lambda _, __: None
    assert changes(index()) == (0, 1, 0, 2)
    texts = [one["passage"]["text"] for one in stored.visible.values() if one["passage"]["document"].endswith("/1.txt")]
    assert sorted(texts) == sorted({*texts})
    assert "An aardvark." in "".join(texts)
    assert stored.visible == stored.latest
    assert changes(index()) == (0, 0, 0, 3)


def test_a_busy_server_is_asked_again(index: Callable[..., Json], server: SearchServer) -> None:
    busy = iter([(503, "")])
    server.instead = lambda _, path: next(busy, None) if path.endswith("_bulk") else None
    server.busy_items = 2
    row = index("--shards", 3)
    assert len(Index(f"{server.address}/papers")) == row["counts"]["paragraphs"]
    assert server.indexes["papers"].settings == {"number_of_shards": 3}
    assert index()["status"] == "up to date"
    assert "shards: 3 → 2" in index("--shards", 2, code=1)


def test_the_words_are_the_models_and_no_model_is_needed_to_search(
    index: Callable[..., Json], server: SearchServer, papers: Path, tiny_model: TinyModel, run_alone: Run
) -> None:
    (papers / "x.txt").write_text("TACHYCARDIA, x-ray")
    model = adapted(tiny_model)
    index("-m", model)
    model.rename(model.with_name("elsewhere"))
    words = [one.get("words") for one in server.indexes["papers"].visible.values()]
    assert "tachycardia x ray" in words
    assert Index(f"{server.address}/papers").search("X-Ray")[0].text == "TACHYCARDIA, x-ray"
    assert "another model" in index("-m", tiny_model(), code=1)


def test_qa_answers_from_it_as_from_a_folder(
    index: Callable[..., Json], server: SearchServer, tiny_model: TinyModel, run_alone: Run, papers: Path
) -> None:
    index()
    run_alone("index", *WHOLE, "--documents", papers, "-o", "px", "--paragraph-chars", 100)
    model = adapted(tiny_model, architecture="BertForQuestionAnswering")
    asked = ("qa", "-m", model, "-q", "virus coronavirus", "--passages", 3, "--max-length", 64)
    [local] = [json.loads(line) for line in run_alone(*asked, "--index", "px", "--json").stdout.splitlines()]
    row = json.loads(run_alone(*asked, "--search", f"{server.address}/papers", "--json").stdout)
    assert row["answer"]
    assert row["logit"] == pytest.approx(local["logit"], rel=1e-4)
    assert [row[name] for name in ("answer", "document", "start")] == [
        local["answer"],
        local["document"],
        local["start"],
    ]
    out = (*asked, "--search", f"{server.address}/papers", "-o", "answers", "--json")
    statuses = [json.loads(run_alone(*out).stdout)["status"] for _ in range(2)]
    (papers / "0.txt").write_text("virus coronavirus")
    index()
    assert [*statuses, json.loads(run_alone(*out).stdout)["status"]] == ["done", "up to date", "done"]
    with pytest.raises(UsageError, match="no vectors"):
        greenadapt.Index(f"{server.address}/papers").search("virus", by="hybrid")


@pytest.mark.parametrize("how", ["login", "key", "netrc"])
def test_a_login_is_sent_and_never_shown(
    how: str,
    index: Callable[..., Json],
    server: SearchServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_alone: Run,
) -> None:
    user, password = SECRET.split(":")
    server.login(user, password)
    assert "GREENADAPT_SEARCH_LOGIN" in index(code=1)
    if how == "login":
        monkeypatch.setenv("GREENADAPT_SEARCH_LOGIN", SECRET)
    elif how == "key":
        server.authorization = f"ApiKey {password}"
        monkeypatch.setenv("GREENADAPT_SEARCH_API_KEY", password)
    else:
        (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login {user} password {password}\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    row = index()
    found = run_alone("search", "--search", f"{server.address}/papers", "virus")
    server.login("other", "one")
    refused = index(code=1)
    kept = json.dumps([row, found.stdout, found.stderr, refused, server.indexes["papers"].mappings])
    assert row["counts"]["documents"] == 3
    assert password not in kept


HIT = {"_score": 1.0, "_source": {"passage": {"document": 5, "title": "", "start": 0, "end": 1, "text": "a"}}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, "[1, 2]"),
        (200, "{}"),
        (200, '{"a": 5}'),
        (200, '{"a": {"mappings": 5}}'),
        (200, '{"papers": {"mappings": {"_meta": {"greenadapt": {"facts": 5}}}}}'),
        (200, json.dumps({"hits": {"hits": [HIT]}, "_shards": {"failed": 0, "total": 1}, "count": "x", "items": 5})),
        (200, '{"hits": {"hits": 5}, "_shards": 5, "items": [{"index": {}}], "found": true, "_source": 5}'),
        (200, '{"aggregations": {"documents": {"buckets": [5]}}, "items": [], "_source": {"tokenizer": "{}"}}'),
        (200, "[" * 100_000),
        (404, '{"found": 5}'),
        (500, '{"error": {"root_cause": [5], "reason": [5]}}'),
        (400, "[" * 100_000),
    ],
)  # fmt: skip
def test_what_is_no_search_server_is_one_line(
    index: Callable[..., Json], server: SearchServer, papers: Path, status: int, answer: str
) -> None:
    index()
    address = f"{server.address}/papers"
    opened = Index(address)
    command = ["index", "--documents", str(papers), "--search", address, "--paragraph-chars", "100"]
    for path in ("_mapping", "_search", "_count", "_bulk", "_delete_by_query"):
        server.instead = lambda _, asked, path=path: (status, answer) if asked.endswith(path) else None  # type: ignore[misc]
        for call in (lambda: opened.search("virus", 3), lambda: Index(address).search("virus", 3)):
            said = ""
            try:
                call()
            except GreenadaptError as error:
                said = str(error)
            assert "\n" not in said
        next(papers.iterdir()).write_text(f"a change {path}")
        ended = CliRunner().invoke(app, command)
        assert isinstance(ended.exception, SystemExit | None), ended.exception
        assert len([line for line in ended.stderr.splitlines() if line.startswith("greenadapt: ")]) <= 1


def test_what_the_server_refuses_is_one_line(
    index: Callable[..., Json], server: SearchServer, run_alone: Run, tmp_path: Path
) -> None:
    address = f"{server.address}/papers"
    for url, kind, said in (
        (address, MissingError, "not a search index"),
        ("http://127.0.0.1:1/papers", ServerError, "Connection refused"),
        (f"{server.address}/Papers*", UsageError, "name of an index"),
        (f"http://{SECRET}@127.0.0.1/papers", UsageError, "LOGIN"),
    ):
        with pytest.raises(kind, match=said) as caught:
            Index(url)
        assert SECRET.split(":")[1] not in str(caught.value)
    server.instead = lambda *_: (200, "<html>")
    with pytest.raises(ServerError, match="does not answer as"):
        Index(address)
    server.instead = lambda *_: (401, "Unauthorized")  # OpenSearch's plugin
    with pytest.raises(ServerError, match="login"):
        Index(address)
    server.instead = lambda *_: None
    index()
    kept = server.indexes["papers"].mappings["_meta"]["greenadapt"]["facts"]
    kept["version"] = 99
    with pytest.raises(InputError, match="version 99"):
        Index(address)
    server.indexes["papers"].mappings["_meta"] = {}
    for force in ((), ("--force",)):
        assert "is no index of greenadapt" in index(*force, code=1)
    assert "papers" in server.indexes
    assert "--vectors" in index("--vectors", "-m", tmp_path, code=2)
    assert "exclude" in index("-o", "px", code=2)
    assert "--search" in last_line(run_alone("search", address, "virus", code=2))
    assert "a query" in last_line(run_alone("search", "--search", address, code=2))


def test_a_redirect_is_not_followed_and_is_no_answer(
    index: Callable[..., Json], server: SearchServer, run_alone: Run
) -> None:
    index()
    with search_server() as elsewhere:
        server.location = f"{elsewhere.address}/papers"
        for status, body in ((302, ""), (307, '{"papers": {"mappings": {}}}')):
            server.instead = lambda *_, status=status, body=body: (status, body)
            found = run_alone("search", "--search", f"{server.address}/papers", "virus", code=1)
            for line in (index(code=1), last_line(found)):
                assert server.address in line
                assert str(status) in line
        assert elsewhere.requests == []
