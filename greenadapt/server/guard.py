"""The guard before the application: tokens, hosts, limits of requests, and the headers of every response."""

import asyncio
import json
import os
import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import compare_digest
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response

from greenadapt.errors import UsageError

TOKEN = "GREENADAPT_SERVE_TOKEN"
"""Environment variable of the token."""
_SHORTEST = 16


def read_token() -> str | None:
    """The token, if any; raises ``UsageError`` for a token that can be guessed."""
    token = os.environ.get(TOKEN, "").strip()
    if token and (len(token) < _SHORTEST or not token.isascii()):
        raise UsageError(
            f"{TOKEN} has {len(token)} characters, must have at least {_SHORTEST}, all of ASCII",
            "make one with openssl rand -hex 32",
        )
    return token or None


FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of the folder that worker processes share their counts in."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_PREFIX = "greenadapt"


class Metrics:
    """Numbers of requests and of texts that models read, and times; of all workers where ``FOLDER`` is set."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        common: Any = {"namespace": _PREFIX, "registry": self._registry}
        self.requests = Counter("requests", "Requests that were answered.", ("path", "status"), **common)
        self.seconds = Histogram("request_seconds", "Time of requests.", ("path",), buckets=_SECONDS, **common)
        self.texts = Counter("texts", "Texts, or documents of questions, that models read.", ("model",), **common)
        text = "Texts that wait for a model, or go through one."
        self.waiting = Gauge("waiting_texts", text, multiprocess_mode="livesum", **common)

    def exposed(self) -> bytes:
        """All numbers, in Prometheus's text format."""
        registry = self._registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


Scope = Any
_SCRIPT, _STYLE = "text/javascript", "text/css"
PAGES = {
    "/": ("server/page/page.html.j2", "text/html"),
    "/page.js": ("server/page/page.js", _SCRIPT),
    "/docs": ("server/page/docs.html.j2", "text/html"),
    "/docs.js": ("server/page/docs.js", _SCRIPT),
    "/shared.js": ("server/page/shared.js", _SCRIPT),
    "/scheme.js": ("report/page/scheme.js", _SCRIPT),
    "/page.css": ("server/page/page.css", _STYLE),
    "/look.css": ("report/page/page.css", _STYLE),
    "/icon.svg": ("server/page/icon.svg", "image/svg+xml"),
}
"""Address → file of the package and type; the pages share their style with the page of ``report``."""
_BEARER = HTTPBearer(auto_error=False)
_OPEN = (*PAGES, "/health")
"""Addresses that need no token."""
_KNOWN = (*_OPEN, "/predict", "/answer", "/neighbours", "/models", "/metrics", "/openapi.json")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

_CLOSED = 20


def problem(status: int, sentence: str) -> Response:
    """A response with an error; ASCII, so that it can hold any text."""
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(status)
    return Response(json.dumps({"error": sentence}), status, headers, "application/json")


@dataclass(frozen=True)
class Guard:
    """An ASGI application that lets a request through to ``app`` or refuses it, and counts it."""

    app: Any
    metrics: Metrics
    seconds: float
    """The longest time that a request may take, its arrival included."""
    most_bytes: int
    """Limit of a request's body."""
    hosts: Sequence[str] = ()
    """Host names that are accepted; all if empty. On a loopback address a foreign page could let its own host name
    resolve to this server, and read the answers."""
    token: str | None = None
    keeps: bool = True
    """Whether connections are kept. Otherwise a random answer in ``_CLOSED`` closes its connection, so that clients
    spread over several workers again, also over a new worker."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def answer(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if not self.keeps and random.randrange(_CLOSED) == 0:
                    headers["connection"] = "close"
            await send(message)

        try:
            refused = await self._refused(scope)
            try:
                async with asyncio.timeout(self.seconds):
                    body = None if refused else await self._body(scope, receive)
                    if body is None:
                        large = problem(413, f"the body has more than {self.most_bytes:,} bytes: send less at once")
                        await (refused or large)(scope, receive, answer)
                    else:
                        await self.app(scope, _replayed(body, receive), answer)
            except TimeoutError:
                if not status:
                    late = problem(504, f"the request took longer than {self.seconds:g} s: send less at once")
                    await late(scope, receive, answer)
        finally:
            path = scope["path"] if scope["path"] in _KNOWN else "other"
            self.metrics.requests.labels(path, str(status or 500)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - began)

    async def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        # Starlette's TrustedHostMiddleware can only answer with 400 and plain text.
        if self.hosts and _host(headers.get("host", "")) not in self.hosts:
            return problem(
                421, f"the server is not called that: call it {self.hosts[0]}, or start it with --allow-host"
            )
        if self.token is not None and scope["path"] not in _OPEN:
            # Not a dependency of the application: FastAPI reads and parses the body before these.
            sent = await _BEARER(Request(scope))
            if sent is None or not compare_digest(sent.credentials.strip().encode(), self.token.encode()):
                return problem(401, "the token is missing or wrong: send the header Authorization: Bearer TOKEN")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        # A page from elsewhere can send other types without asking first.
        if scope["method"] == "POST" and kind != "application/json":
            return problem(415, "the body must be JSON: send the header Content-Type: application/json")
        return None

    async def _body(self, scope: Scope, receive: Any) -> bytes | None:
        """The whole body; ``None`` as soon as it is too large."""
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length) > self.most_bytes:
            return None
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.most_bytes:
                return None
            if not message.get("more_body", False):  # a disconnected client sends none, either
                return bytes(body)


def _replayed(body: bytes, receive: Any) -> Any:
    """A ``receive`` that gives the whole ``body`` as one message, and then what ``receive`` gives."""
    read = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return read.pop() if read else await receive()

    return again


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    name = header.strip().lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]


_REASONS = {
    "recursion limit exceeded": "is nested too deeply",
    "lone leading surrogate in hex escape": "has half a character, a surrogate without the other one,",
    "unexpected end of hex escape": "has an escape that is no whole character, such as half a pair of surrogates,",
    "invalid unicode code point": "is not UTF-8, or has an escape that is no character,",
    "number out of range": "has a number that is too long",
}
"""Messages of the parser → plainer ones."""


def unreadable(message: str) -> str:
    """The error of a body that is not JSON, with line and column, from the ``message`` of the parser."""
    reason, _, position = message.partition(" at line ")
    return f"the body {_REASONS.get(reason, f'is not JSON: {reason}')} at line {position}"


def sentence(error: RequestValidationError) -> str:
    """The first invalid value: its path, and what it must be."""
    [first, *_] = error.errors()
    _, *path = first["loc"]
    if not path:
        return "the body is not a JSON object: send one as /openapi.json describes"
    if first["type"] == "missing":
        return f"{path_text(path)} is missing"
    if first["type"] == "extra_forbidden":
        return f"{path_text(path)} is not known: leave it out, or see /openapi.json"
    problem = re.sub(r"^\w+ should ", "must ", first["msg"]).replace(" after validation", "")
    return f"{path_text(path)} {problem}"


def path_text(path: Sequence[Any]) -> str:
    """A path such as ``texts[3]``; names of a request, which may be any text, are cut and made plain."""
    parts = [f"[{part}]" if isinstance(part, int) else "." + re.sub(r"[^\w-]", "?", str(part))[:40] for part in path]
    # A union adds the name of the type that was tried.
    return "".join(part for part in parts if not re.match(r"\.(str$|dict\?|list\?|function-)", part)).lstrip(".")
