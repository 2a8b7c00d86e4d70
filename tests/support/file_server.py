"""A file server on this machine that a test can make slow, busy, broken or changing."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Server:
    """The files, the faults of the answers, and the requests so far."""

    files: dict[str, bytes]
    ranges: bool = True
    content_range: str = ""
    """``Content-Range`` of ranges, with ``{start}``, ``{last}`` and ``{size}``; empty: the right one."""
    cut_after: int = 0
    """Close the connection after so many bytes of an answer, ``cuts`` times."""
    cuts: int = 0
    version: str = '"1"'
    """``ETag`` of all files."""
    encoding: str = ""
    """``Content-Encoding`` of all answers."""
    answers: float = float("inf")
    """So many requests are answered."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and range."""
    paths: list[str] = field(default_factory=list)
    address: str = ""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as ``state`` says; a subclass sets it."""

    state: Server

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        range_header = self.headers.get("Range", "")
        if self.headers.get("If-Range", self.state.version) != self.state.version:
            range_header = ""
        self.state.requests.append((self.command, range_header))
        self.state.paths.append(self.path)
        content = self.state.files.get(self.path)
        if len(self.state.requests) > self.state.answers:
            self.close_connection = True
        elif content is None:
            self.send_error(404)
        else:
            start = (
                int(range_header.removeprefix("bytes=").removesuffix("-"))
                if range_header and self.state.ranges
                else None
            )
            self._send_head(content, start)
            if with_body:
                self._send_body(content[start or 0 :])

    def _send_head(self, content: bytes, start: int | None) -> None:
        size = len(content)
        if start is None:
            self.send_response(200)
        elif start < size:
            self.send_response(206)
            content_range = self.state.content_range or "bytes {start}-{last}/{size}"
            self.send_header("Content-Range", content_range.format(start=start, last=size - 1, size=size))
        else:
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{size}")
        if self.state.version:
            self.send_header("ETag", self.state.version)
        if self.state.encoding:
            self.send_header("Content-Encoding", self.state.encoding)
        self.send_header("Content-Length", str(max(size - (start or 0), 0)))
        self.end_headers()

    def _send_body(self, content: bytes) -> None:
        if self.state.cuts:
            self.state.cuts -= 1
            content = content[: self.state.cut_after]
            self.close_connection = True
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def _running(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server whose requests ``handler`` answers."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{httpd.server_port}"
        finally:
            httpd.shutdown()
            thread.join()


@contextmanager
def answering(status: int, content: bytes, headers: dict[str, str]) -> Iterator[str]:
    """Answer every request so, with its path for ``{path}`` in ``headers``; yields the address."""

    class Same(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value.replace("{path}", self.path.removeprefix("/")))
            self.end_headers()
            if self.command != "HEAD":
                with suppress(ConnectionError):
                    self.wfile.write(content)

        do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with _running(Same) as address:
        yield address


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Server]:
    """Serve ``files``, by path with its query, as long as the context is open."""
    state = Server(files)
    handler = type("StatefulHandler", (Handler,), {"state": state})
    with _running(handler) as state.address:
        yield state
