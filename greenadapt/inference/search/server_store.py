"""An index on an OpenSearch or Elasticsearch server.

A document of the server is a paragraph. Its field ``words`` holds the words as the model's tokenizer splits them, which
the server splits at spaces only; the query is split the same way. Neither server changes several documents at one
moment, so every paragraph says how many its document has: one that was written in part is written again.
"""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from tokenizers import Tokenizer

from greenadapt.errors import ConflictError, InputError, MissingError, ServerError
from greenadapt.inference.search.connection import ATTEMPTS, BUSY, Connection
from greenadapt.inference.search.store import Change, DocumentKey, Entry, IndexFacts, Passage, in_order
from greenadapt.storage.files import Json, hash_json
from greenadapt.tokenization.vocabulary import tokenizer_json

_META = "greenadapt"
"""Under which name the index's ``_meta`` says what it is."""
_TOKENIZER = "tokenizer"
"""Id of the document that holds ``tokenizer.json``, and its field."""
_REQUEST = 4 << 20
"""Bytes of paragraphs in a request."""
_PAGE = 1000
"""Documents that are looked up, or removed, in a request."""
_MAPPINGS: Json = {
    "dynamic": "strict",
    "properties": {
        "name": {"type": "keyword"},
        "state": {"type": "keyword"},
        "paragraphs": {"type": "integer"},
        "words": {"type": "text", "analyzer": "whitespace", "index_options": "freqs"},
        "passage": {"type": "object", "enabled": False},
        _TOKENIZER: {"type": "object", "enabled": False},
    },
}
_WHOLE = {"allow_partial_search_results": "false"}


class ServerStore:
    """The index at an address, a ``ParagraphStore``."""

    def __init__(self, url: str) -> None:
        self.connection = Connection(url)
        self.place = self.connection.place

    def facts(self) -> IndexFacts | None:
        """Those in the mapping's ``_meta``; ``None`` as well for an index of another program."""
        with self.connection.understood():
            kept = (self._meta() or {}).get(_META) or {}
            return IndexFacts.of(json.dumps(kept["facts"]), self.place) if "facts" in kept else None

    def create(self, facts: IndexFacts, tokenizer: Path | None) -> None:
        """Make an empty index; it counts as one once its facts are written."""
        found = self._meta()
        if found is not None:
            if _META not in found:
                raise ConflictError(f"{self.place} is there already, and is no index of greenadapt", "use another name")
            self.asked("DELETE")
        settings: Json = {}
        if facts.config.shards is not None:
            settings = {"number_of_shards": facts.config.shards}
        self.asked("PUT", "", {"settings": settings, "mappings": {**_MAPPINGS, "_meta": {_META: {}}}})
        if tokenizer is not None:
            self.asked("PUT", f"_doc/{_TOKENIZER}", {_TOKENIZER: tokenizer_json(tokenizer).decode()})
        self.write_facts(facts)

    def write_facts(self, facts: IndexFacts) -> None:
        """Replace the mapping's ``_meta``; the revision is new each time, so that ``state`` is."""
        kept = {"facts": facts.as_json(), "revision": uuid4().hex}
        self.asked("PUT", "_mapping", {"_meta": {_META: kept}})

    def tokenizer(self) -> Tokenizer:
        """The one in the document ``tokenizer``."""
        answer = self.asked("GET", f"_doc/{_TOKENIZER}")
        if not answer["found"]:
            raise MissingError(f"{self.place} has no tokenizer any more", "index again with --force")
        with self.connection.understood():
            try:
                tokenizer: Tokenizer = Tokenizer.from_str(answer["_source"][_TOKENIZER])
            except (KeyError, TypeError):
                raise
            except Exception as error:  # which tokenizers raises as such
                raise ValueError(error) from None
        return tokenizer

    def state(self) -> str:
        """A hash of the facts and their revision, which is new after each run of ``index``."""
        return hash_json(self._meta())

    def __len__(self) -> int:
        answer = self.asked("POST", "_count", {"query": {"exists": {"field": "name"}}})
        with self.connection.understood():
            self._require_all_shards(answer)
            return int(answer["count"])

    def search(self, words: Iterable[str], top: int) -> list[Passage]:
        """The ``top`` best by BM25, with the frequencies of words in all shards."""
        from pydantic import TypeAdapter  # a tenth of a second

        text = " ".join(dict.fromkeys(words))
        if not text:
            return []
        query = {"match": {"words": {"query": text}}}
        body = {"query": query, "size": top, "_source": ["passage"], "track_total_hits": False}
        answer = self._searched(body, search_type="dfs_query_then_fetch")
        with self.connection.understood():
            found = [{**hit["_source"]["passage"], "score": hit["_score"]} for hit in answer["hits"]["hits"]]
            return in_order(TypeAdapter(list[Passage]).validate_python(found))

    def changes(self, documents: Sequence[DocumentKey]) -> list[Change]:
        """What each document is: unchanged only if all of its paragraphs are there, and no others."""
        known: dict[str, list[tuple[str, bool]]] = {}
        for start in range(0, len(documents), _PAGE):
            names = [one.name for one in documents[start : start + _PAGE]]
            for each in self._buckets(("name", "state", "paragraphs"), {"terms": {"name": names}}):
                with self.connection.understood():
                    key = each["key"]
                    is_whole = each["doc_count"] == key["paragraphs"]
                    known.setdefault(key["name"], []).append((key["state"], is_whole))
        return [
            "added" if one.name not in known else "unchanged" if known[one.name] == [(one.state, True)] else "changed"
            for one in documents
        ]

    def names(self) -> Iterator[str]:
        """The hashed names of all documents."""
        for each in self._buckets(("name",), {"exists": {"field": "name"}}):
            with self.connection.understood():
                name = each["key"]["name"]
            yield name

    def writer(self) -> "ServerWriter":
        """The one writer; what one that was killed wrote is visible from now on."""
        self.asked("POST", "_refresh")
        return ServerWriter(self)

    def _meta(self) -> Json | None:
        """What the index says of itself, empty if nothing; ``None`` if there is no such index."""
        answer = self.connection.ask("GET", "_mapping")
        if answer is None:
            return None
        if len(answer) != 1:
            raise InputError(f"{self.place} stands for {len(answer)} indexes", "name one of them")
        with self.connection.understood():
            [found] = answer.values()
            return dict(found["mappings"].get("_meta", {}))

    def _buckets(self, fields: Sequence[str], query: Json) -> Iterator[Json]:
        """Every combination of the fields' values, with how many paragraphs have it."""
        composite: Json = {"size": _PAGE, "sources": [{name: {"terms": {"field": name}}} for name in fields]}
        while True:
            body = {"size": 0, "query": query, "aggs": {"documents": {"composite": composite}}}
            answer = self._searched(body)
            with self.connection.understood():
                found = answer["aggregations"]["documents"]
                buckets = list(found["buckets"])
            yield from buckets
            if "after_key" not in found:
                return
            composite = {**composite, "after": found["after_key"]}

    def _searched(self, body: Json, **parameters: str) -> Json:
        answer: Json = self.asked("POST", "_search", body, **_WHOLE, **parameters)
        return answer

    def asked(self, method: str, path: str = "", body: Json | bytes | None = None, **parameters: str) -> Any:
        """The server's answer about the index, which has to be there; see ``Connection.ask``."""
        answer = self.connection.ask(method, path, body, **parameters)
        if answer is None:
            raise ServerError(f"there is no index {self.place} any more", "index again")
        return answer

    def _require_all_shards(self, answer: Json) -> None:
        shards = answer["_shards"]
        if shards["failed"]:
            raise ServerError(
                f"{shards['failed']} of the {shards['total']} shards of {self.place} do not answer",
                "see to the server's nodes",
            )


class ServerWriter:
    """A ``StoreWriter`` that sends paragraphs as they come; a commit makes them visible, then removes older ones."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._waiting: list[bytes] = []
        self._size = 0
        self._removed: list[str] = []
        self._states: list[str] = []

    def put(self, document: DocumentKey, entries: Sequence[Entry], *, is_new: bool) -> None:
        """Put a document's paragraphs in place of those that it has, if it is not new."""
        if not is_new:
            self._removed.append(document.name)
            self._states.append(document.state)
        for entry in entries:
            fields = {
                "name": document.name,
                "state": document.state,
                "paragraphs": len(entries),
                "words": entry.words,
                "passage": entry.passage.stored(),
            }
            lines = ({"index": {"_id": str(entry.key)}}, fields)
            self._waiting.append(b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines))
            self._size += len(self._waiting[-1])
            if self._size >= _REQUEST:
                self._send()

    def remove(self, name: str) -> None:
        """Take out all paragraphs of the document of this hashed name."""
        self._removed.append(name)

    def commit(self) -> None:
        """Make what was put visible, then remove what it replaces: a search may find both for a moment."""
        self._send()
        self._store.asked("POST", "_refresh")
        # Unchanged paragraphs of a changed document have their new state by now.
        states, names = self._states, iter(self._removed)
        while some := [*islice(names, _PAGE)]:
            query = {"bool": {"filter": {"terms": {"name": some}}, "must_not": {"terms": {"state": states}}}}
            answer = self._store.asked(
                "POST", "_delete_by_query", {"query": query}, conflicts="proceed", refresh="true"
            )
            with self._store.connection.understood():
                is_done = not (answer["timed_out"] or answer["failures"])
            if not is_done:
                raise ServerError(f"{self._store.place} did not remove all it should", "the same command goes on")
        self._removed, self._states = [], []

    def close(self) -> None:
        """Forget what was not sent."""
        self._waiting = []

    def _send(self) -> None:
        """Send what waits; what the server has no room for now is sent again, after longer and longer waits."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        for attempt in range(ATTEMPTS + 1):
            if not waiting:
                return
            if attempt:
                time.sleep(2.0 ** (attempt - 2))
            answer = self._store.asked("POST", "_bulk", b"".join(waiting))
            with self._store.connection.understood():
                items = [item["index"] for item in answer["items"]]
                refused = [item for item in items if item["status"] >= 300]
                for item in refused:
                    if item["status"] not in BUSY:
                        raise self._refusal(item, "")
                waiting = [lines for lines, item in zip(waiting, items, strict=True) if item["status"] in BUSY]
        if waiting:
            raise self._refusal(refused[0], "try again later; the same command goes on")

    def _refusal(self, item: Json, hint: str) -> ServerError:
        return ServerError(
            f"{self._store.place} does not take a paragraph, status {item['status']} ({item['error']['reason']})", hint
        )
