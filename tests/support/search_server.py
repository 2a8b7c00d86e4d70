"""A stand-in for an OpenSearch or Elasticsearch server: it answers as their documentation and API tests say.

It is not one of them. It knows the requests that ``index`` and ``search`` make, refuses all others as the servers
refuse what they do not know, and keeps what makes them hard to use right: nothing is found before a refresh, a removal
by query leaves what changed since the refresh, and a bulk request may succeed in part.
"""

import base64
import http.server
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Json = dict[str, Any]
_SHARDS = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
_PARAMETERS = {
    "_search": {"search_type", "allow_partial_search_results"},
    "_delete_by_query": {"conflicts", "refresh"},
}


class RefusedError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        self.status = status
        cause = {"type": kind, "reason": reason}
        self.body = {"error": {"root_cause": [cause], **cause}, "status": status}


@dataclass
class StoredIndex:
    """An index: documents as they were written last, and as a search sees them."""

    mappings: Json
    settings: Json
    latest: dict[str, Json] = field(default_factory=dict)
    visible: dict[str, Json] = field(default_factory=dict)


@dataclass
class SearchServer:
    """What is stored, what the next answers are instead, and the requests seen."""

    address: str = ""
    indexes: dict[str, StoredIndex] = field(default_factory=dict)
    authorization: str = ""
    """The header that requests have to send, if any."""
    instead: Callable[[str, str], tuple[int, str] | None] = lambda method, path: None
    """Status and body of an answer that is given instead of the right one."""
    location: str = ""
    """Where such an answer redirects to, if anywhere."""
    busy_items: int = 0
    """How many items of bulk requests are refused before others are taken."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path."""

    def login(self, user: str, password: str) -> None:
        """Require a login."""
        self.authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def answer(self, method: str, path: str, parameters: Json, body: bytes, kind: str) -> Json:
        """The right answer; raises ``RefusedError``."""
        name, _, rest = path.strip("/").partition("/")
        action = rest.partition("/")[0]
        if unknown := set(parameters) - _PARAMETERS.get(action, set()):
            raise RefusedError(400, "illegal_argument_exception", f"contains unrecognized parameters: {unknown}")
        wanted = "application/x-ndjson" if action == "_bulk" else "application/json"
        if body and kind != wanted:
            raise RefusedError(406, "media_type_header_exception", f"Content-Type header [{kind}] is not supported")
        if (method, rest) == ("PUT", ""):
            return self._create(name, json.loads(body))
        index = self.indexes.get(name)
        if index is None:
            raise RefusedError(404, "index_not_found_exception", f"no such index [{name}]")
        if action == "_bulk":
            return self._bulk(index, body)
        if (method, rest) == ("DELETE", ""):
            del self.indexes[name]
            return {"acknowledged": True}
        answers: dict[tuple[str, str], Callable[[Json], Json]] = {
            ("GET", "_mapping"): lambda _: {name: {"mappings": index.mappings}},
            ("PUT", "_mapping"): lambda given: _mapped(index, given),
            ("PUT", "_doc"): lambda given: _put(index, rest.removeprefix("_doc/"), given),
            ("GET", "_doc"): lambda _: _got(index, rest.removeprefix("_doc/")),
            ("POST", "_refresh"): lambda _: _refreshed(index),
            ("POST", "_count"): lambda given: {"count": len(_matching(index, given["query"])), "_shards": _SHARDS},
            ("POST", "_search"): lambda given: _found(index, given),
            ("POST", "_delete_by_query"): lambda given: _deleted(index, given["query"], parameters),
        }
        if (method, action) not in answers:
            raise RefusedError(405, "method_not_allowed", f"Incorrect HTTP method for uri [{path}]: [{method}]")
        return answers[method, action](json.loads(body) if body else {})

    def _create(self, name: str, body: Json) -> Json:
        if name in self.indexes:
            raise RefusedError(400, "resource_already_exists_exception", f"index [{name}] already exists")
        assert {*body} <= {"settings", "mappings"}
        self.indexes[name] = StoredIndex(body["mappings"], body["settings"])
        return {"acknowledged": True, "shards_acknowledged": True, "index": name}

    def _bulk(self, index: StoredIndex, body: bytes) -> Json:
        assert body.endswith(b"\n")
        lines = [json.loads(line) for line in body.splitlines()]
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            name = action["index"]["_id"]
            if self.busy_items:
                self.busy_items -= 1
                error = {"type": "rejected_execution_exception", "reason": "rejected execution of coordinating task"}
                items.append({"index": {"_id": name, "status": 429, "error": error}})
                continue
            _put(index, name, document)
            items.append({"index": {"_id": name, "result": "created", "status": 201, "_shards": _SHARDS}})
        return {"took": 1, "errors": any("error" in item["index"] for item in items), "items": items}


def _mapped(index: StoredIndex, given: Json) -> Json:
    index.mappings |= given
    return {"acknowledged": True}


def _refreshed(index: StoredIndex) -> Json:
    index.visible = dict(index.latest)
    return {"_shards": _SHARDS}


def _put(index: StoredIndex, name: str, document: Json) -> Json:
    for each in document:
        if each not in index.mappings["properties"]:
            raise RefusedError(400, "strict_dynamic_mapping_exception", f"introduction of [{each}] is not allowed")
    index.latest[name] = document
    return {"_id": name, "result": "created", "_shards": _SHARDS}


def _got(index: StoredIndex, name: str) -> Json:
    found = index.latest.get(name)
    return {"_id": name, "found": found is not None, **({} if found is None else {"_source": found})}


def _matching(index: StoredIndex, query: Json) -> dict[str, Json]:
    return {name: document for name, document in index.visible.items() if _matches(index, query, document)}


def _matches(index: StoredIndex, query: Json, document: Json) -> bool:
    [(kind, how)] = query.items()
    match kind:
        case "exists":
            return how["field"] in document
        case "terms":
            [(name, values)] = how.items()
            assert index.mappings["properties"][name]["type"] == "keyword"
            return document.get(name) in values
        case "bool":
            assert {*how} <= {"filter", "must_not"}
            return _matches(index, how["filter"], document) and not _matches(index, how["must_not"], document)
    raise RefusedError(400, "parsing_exception", f"unknown query [{kind}]")


def _found(index: StoredIndex, body: Json) -> Json:
    if body["size"] > 10_000:
        raise RefusedError(400, "illegal_argument_exception", "Result window is too large")
    if "aggs" in body:
        [(name, how)] = body["aggs"].items()
        buckets = _buckets(_matching(index, body["query"]), how["composite"])
        return {"_shards": _SHARDS, "hits": {"hits": []}, "aggregations": {name: buckets}}
    scores = _scores(index, body["query"]["match"]["words"]["query"].split())
    best = sorted(scores, key=lambda name: -scores[name])[: body["size"]]
    hits = [
        {
            "_id": name,
            "_score": scores[name],
            "_source": {part: index.visible[name][part] for part in body["_source"]},
        }
        for name in best
    ]
    return {"took": 1, "timed_out": False, "_shards": _SHARDS, "hits": {"max_score": 1.0, "hits": hits}}


def _scores(index: StoredIndex, words: list[str]) -> dict[str, float]:
    """Okapi BM25."""
    counts = {name: Counter(one["words"].split()) for name, one in index.visible.items() if "words" in one}
    mean = sum(each.total() for each in counts.values()) / max(1, len(counts))
    scores: Counter[str] = Counter()
    for word in words:
        having = {name: each[word] for name, each in counts.items() if word in each}
        idf = math.log(1 + (len(counts) - len(having) + 0.5) / (len(having) + 0.5))
        for name, n in having.items():
            scores[name] += idf * n * 2.2 / (n + 1.2 * (0.25 + 0.75 * counts[name].total() / mean))  # type: ignore[assignment]
    return dict(scores)


def _buckets(documents: dict[str, Json], how: Json) -> Json:
    fields = [name for source in how["sources"] for name in source]
    counts = Counter(tuple(one[name] for name in fields) for one in documents.values())
    after = tuple(how["after"][name] for name in fields) if "after" in how else ()
    keys = sorted(key for key in counts if key > after)[: how["size"]]
    buckets: list[Json] = [{"key": dict(zip(fields, key, strict=True)), "doc_count": counts[key]} for key in keys]
    return {"buckets": buckets, **({"after_key": buckets[-1]["key"]} if buckets else {})}


def _deleted(index: StoredIndex, query: Json, parameters: Json) -> Json:
    found = _matching(index, query)
    conflicts = [name for name, document in found.items() if index.latest.get(name) is not document]
    if conflicts and parameters.get("conflicts") != "proceed":
        raise RefusedError(409, "version_conflict_engine_exception", "version conflict")
    for name in found:
        if name not in conflicts:
            del index.latest[name]
    if parameters.get("refresh") == "true":
        index.visible = dict(index.latest)
    n = len(found) - len(conflicts)
    return {"timed_out": False, "deleted": n, "version_conflicts": len(conflicts), "failures": []}


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers as ``state`` does; a subclass sets it."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    state: SearchServer

    def _answer(self) -> None:
        parts, method = urlsplit(self.path), self.command
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.state.requests.append((method, parts.path))
        instead = self.state.instead(method, parts.path)
        try:
            if instead is not None:
                return self._send(*instead)
            if self.headers.get("Authorization", "") != self.state.authorization:
                raise RefusedError(401, "security_exception", f"missing authentication credentials for [{parts.path}]")
            kind = self.headers.get("Content-Type", "")
            said = self.state.answer(method, parts.path, dict(parse_qsl(parts.query)), body, kind)
            self._send(404 if said.get("found") is False else 200, json.dumps(said))
        except RefusedError as error:
            self._send(error.status, json.dumps(error.body))

    do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def _send(self, status: int, body: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if self.state.location:
            self.send_header("Location", self.state.location)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def search_server() -> Iterator[SearchServer]:
    """The server, on a free port of this machine."""
    state = SearchServer()
    handler = type("Handler", (_Handler,), {"state": state})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        state.address = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()
