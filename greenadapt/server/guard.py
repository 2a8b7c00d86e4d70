"""What stands before the application: who may ask, for how long, and the headers of every response."""

import asyncio
import hmac
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from greenadapt.server.metrics import Metrics

Scope = Any
_SCRIPT, _STYLE = "text/javascript", "text/css"
PAGES = {
    "/": ("greenadapt.server.page", "page.html", "text/html"),
    "/page.js": ("greenadapt.server.page", "page.js", _SCRIPT),
    "/docs": ("greenadapt.server.page", "docs.html", "text/html"),
    "/docs.js": ("greenadapt.server.page", "docs.js", _SCRIPT),
    "/shared.js": ("greenadapt.server.page", "shared.js", _SCRIPT),
    "/page.css": ("greenadapt.server.page", "page.css", _STYLE),
    "/look.css": ("greenadapt.report.page", "page.css", _STYLE),
    "/icon.svg": ("greenadapt.server.page", "icon.svg", "image/svg+xml"),
}
"""Address → package, file and type; the pages look as that of ``report``."""
_OPEN = (*PAGES, "/health")
"""What needs no token."""
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
_RETRY = {"retry-after": "1"}
_CLOSED = 20


def problem(status: int, sentence: str) -> Response:
    """A response that says what is wrong; ASCII, so that any text can be in it."""
    headers = {401: {"www-authenticate": "Bearer"}, 503: _RETRY}.get(status)
    return Response(json.dumps({"error": sentence}), status, headers, "application/json")


@dataclass(frozen=True)
class Guard:
    """An ASGI application that lets a request through to ``app`` or refuses it, and counts it."""

    app: Any
    metrics: Metrics
    seconds: float
    """The longest that a request may take, its arrival included."""
    most_bytes: int
    """Of a request's body."""
    hosts: Sequence[str] = ()
    """Names by which the server may be called; any without one. On a loopback address a page from elsewhere could
    have its own name lead here, and read the answers."""
    token: str | None = None
    keeps: bool = True
    """Whether connections are kept. Otherwise one in ``_CLOSED`` answers closes its own, at random, so that the clients
    of several workers spread over them again, also over one that has taken another's place."""

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
            refused = self._refused(scope)
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

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        name = _host(headers.get("host", ""))
        if self.hosts and name not in self.hosts:
            return problem(
                421, f"the server is not called that: call it {self.hosts[0]}, or start it with --allow-host"
            )
        if self.token is not None and scope["path"] not in _OPEN:
            kind, _, given = headers.get("authorization", "").partition(" ")
            # Compared in a time that does not depend on how much of it is right.
            if not (hmac.compare_digest(given.strip().encode(), self.token.encode()) and kind.lower() == "bearer"):
                return problem(401, "the token is missing or wrong: send the header Authorization: Bearer TOKEN")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        # A page from elsewhere can send other types without asking first.
        if scope["method"] == "POST" and kind != "application/json":
            return problem(415, "the body must be JSON: send the header Content-Type: application/json")
        return None

    async def _body(self, scope: Scope, receive: Any) -> bytes | None:
        """The whole body; ``None`` as soon as it is too large."""
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and int(said) > self.most_bytes:
            return None
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self.most_bytes:
                return None
            if not message.get("more_body", False):  # nor has what a client that is gone would send
                return bytes(body)


def _replayed(body: bytes, receive: Any) -> Any:
    """What ``receive`` gave, as one message, and then what it gives."""
    read = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return read.pop() if read else await receive()

    return again


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    name = header.strip().lower()
    return name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
