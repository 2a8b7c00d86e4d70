"""Requests to ``serve``, valid ones with changes, sent to the application in this process."""

import asyncio
import json
import random
import time
import traceback
from pathlib import Path
from typing import Any

from torture.fuzzing import Tally
from torture.mutation import mutated

_BODIES: dict[str, Any] = {
    "/predict": {"texts": ["The tachycardia of 🦠"], "model": "ner", "view": "mean", "compare": True},
    "/answer": {"question": "What virus?", "context": "The virus was isolated.", "model": "squad", "top": 3},
    "/neighbours": {"word": "tachycardia", "top": 5, "model": "encoder"},
}
_PLAIN = (
    "/models",
    "/health",
    "/metrics",
    "/openapi.json",
    "/",
    "/page.js",
    "/../etc/passwd",
    "/%2e%2e/x",
    "/\0",
    "//",
)
_TYPES = ("application/json", "application/json; charset=utf-16", "text/plain", "", "application/json\x1b")
_HOSTS = ("localhost", "127.0.0.1:80", "evil.example", "[::1]", "", "localhost\x00")
_LARGE = 800_000
"""Bytes of a body with as many entries or names as fit; about 0.1 s each."""
_LONGEST = 5.0
_WIDE = (
    '{"texts": […]}',
    '{"texts": [{"tokens": […]}], "model": "ner"}',
    '{"question": "What?", "documents": […]}',
    '{"word": […]}',
    "[…]",
)
_ENTRIES = ("1", '""', "{}", "[]", "null", '{"a": [1]}')
_STATUSES = {200, 400, 401, 404, 405, 413, 415, 421, 422, 503, 504}


def send(folder: Path, seed: int, n: int, at: Path) -> Tally:
    """Send ``n`` requests to models of the folder, with small limits."""
    from tests.support.small_served import application

    app = application(folder / "models", max_chars=2000, max_texts=4)
    return asyncio.run(_send(app, random.Random(f"http {seed}"), n, at))


async def _send(app: Any, draw: random.Random, n: int, at: Path) -> Tally:
    tally = Tally()
    for i in range(n):
        at.write_text(str(i))
        method, path, headers, body = _request(draw)
        request = f"input {i}: {method} {path!r} {body[:200]!r}"
        begin = time.process_time()
        try:
            status, answer = await asyncio.wait_for(_answer(app, method, path, headers, body), 60)
        except TimeoutError:
            tally.add("hung", path, request)
        except Exception:
            tally.add("traceback", path, f"{request}: {traceback.format_exc(limit=-3)}")
        else:
            reason = _why_wrong(status, answer, path)
            if status != 200 and (seconds := time.process_time() - begin) > _LONGEST:
                tally.add("hung", path, f"{request}: {seconds:.1f} s until it was refused")
            tally.add(
                "unclear" if reason else "accepted" if status == 200 else "refused",
                path,
                reason and f"{request}: {reason}",
            )
    return tally


def _request(draw: random.Random) -> tuple[str, str, list[tuple[bytes, bytes]], bytes]:
    if draw.random() < 0.15:
        path, body = draw.choice(_PLAIN), b""
    else:
        path = draw.choice(list(_BODIES))
        body = json.dumps(_BODIES[path]).encode()
        if draw.random() < 0.97:
            body = _wide(draw) if draw.random() < 0.02 else mutated(body, draw)
    method = (
        draw.choice(("POST",) * 8 + ("GET", "PUT", "OPTIONS", "HEAD")) if body else draw.choice(("GET", "GET", "POST"))
    )
    kind = draw.choice(_TYPES) if draw.random() < 0.1 else _TYPES[0]
    host = draw.choice(_HOSTS) if draw.random() < 0.1 else _HOSTS[0]
    headers = [(b"host", host.encode("latin-1")), (b"content-type", kind.encode("latin-1"))]
    if draw.random() < 0.3:
        length = str(len(body)) if draw.random() < 0.5 else draw.choice(("-1", "9" * 30, "x", "0", "²"))
        headers.append((b"content-length", length.encode()))
    return method, path, headers, body


def _wide(draw: random.Random) -> bytes:
    """A body with as many entries of one kind as fit."""
    if draw.random() < 0.2:
        return json.dumps({str(i): 0 for i in range(_LARGE // 10)}).encode()
    entry = draw.choice(_ENTRIES)
    return draw.choice(_WIDE).replace("…", ",".join([entry] * (_LARGE // (len(entry) + 1)))).encode()


async def _answer(
    app: Any, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> tuple[int, bytes]:
    """The status and the body of the response."""
    parts = [body[begin : begin + 4096] for begin in range(0, len(body), 4096)] or [b""]
    waiting = [
        {"type": "http.request", "body": part, "more_body": number < len(parts) - 1}
        for number, part in enumerate(parts)
    ]
    statuses: list[int] = []
    content = bytearray()

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def answer(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        else:
            content.extend(message.get("body", b""))

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": headers, "scheme": "http", "root_path": "",
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await app(scope, receive, answer)
    return statuses[0], bytes(content)


def _why_wrong(status: int, answer: bytes, path: str) -> str:
    """What breaks a promise in a response; empty if nothing does."""
    if status not in _STATUSES:
        return f"status {status}: {answer[:200]!r}"
    if status == 200 or not answer:
        return ""
    try:
        message = json.loads(answer)["error"]
    except (ValueError, KeyError, TypeError):
        return f"status {status} without a sentence: {answer[:200]!r}"
    return (
        "" if isinstance(message, str) and message and "Traceback" not in message else f"status {status}: {message!r}"
    )
