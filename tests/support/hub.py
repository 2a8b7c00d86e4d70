"""A stand-in for the model hub: the requests by which ``huggingface_hub`` creates a repository and commits files."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

TOKEN = "hf_aVerySecretTokenOfTheTests"


@dataclass
class Hub:
    """The repositories of the stand-in, and the faults of its answers."""

    url: str = ""
    repos: dict[str, bool] = field(default_factory=dict)
    """Repository → whether it is private."""
    files: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    """Repository, revision, path → content."""
    messages: list[str] = field(default_factory=list)
    refuses: int | None = None
    """The status of every answer."""
    before: Callable[[], str] = lambda: ""
    """Called with each request; a number is the status of the answer, ``cut`` ends the connection without one."""
    large: dict[str, bytes] = field(default_factory=dict)


@contextmanager
def local_hub() -> Iterator[Hub]:
    """A hub on this machine."""
    hub = Hub()

    class Handler(_Handler):
        held = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    held: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self._refused():
            return
        repo = urlsplit(self.path).path.removeprefix("/api/models/")
        self._answer({"id": repo, "_id": "1", "private": self.held.repos[repo]})

    def do_PUT(self) -> None:
        content = self._content()
        if self._refused():
            return
        self.held.large[sha256(content).hexdigest()] = content
        self._answer({})

    def do_POST(self) -> None:
        content = self._content()
        if self._refused():
            return
        path = urlsplit(self.path).path
        if path == "/api/repos/create":
            self._create(json.loads(content))
        elif path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [file["path"] for file in json.loads(content)["files"]]
            modes = [{"path": file, "uploadMode": self._mode(file), "shouldIgnore": False} for file in files]
            self._answer({"files": modes})
        elif path.endswith("/info/lfs/objects/batch"):
            uploads = [self._upload(entry) for entry in json.loads(content)["objects"]]
            self._answer({"transfer": "basic", "objects": uploads})
        elif "/branch/" in path:
            self._answer({})
        else:
            self._commit(path, [json.loads(line) for line in content.splitlines()])

    def _create(self, request: Any) -> None:
        repo = f"{request['organization']}/{request['name']}"
        is_new = repo not in self.held.repos
        self.held.repos.setdefault(repo, request.get("visibility") == "private")
        self._answer({"url": f"{self.held.url}/{repo}", "id": repo}, 200 if is_new else 409)

    def _commit(self, path: str, lines: list[Any]) -> None:
        repo, _, revision = path.removeprefix("/api/models/").partition("/commit/")
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.held.messages.append(value["summary"])
            elif line["key"] == "file":
                self.held.files[repo, revision, value["path"]] = base64.b64decode(value["content"])
            else:
                self.held.files[repo, revision, value["path"]] = self.held.large[value["oid"]]
        self._answer(
            {"success": True, "commitOid": "ab" * 20, "commitUrl": f"{self.held.url}/{repo}/commit/{'ab' * 20}"}
        )

    def _upload(self, entry: Any) -> Any:
        return {**entry, "actions": {"upload": {"href": f"{self.held.url}/put/{entry['oid']}", "header": {}}}}

    def _mode(self, path: str) -> str:
        return "lfs" if path.endswith(".safetensors") else "regular"

    def _refused(self) -> bool:
        status_text = self.held.before()
        if status_text == "cut":
            self.close_connection = True
            return True
        status = int(status_text) if status_text else self.held.refuses
        if status is None and (self.command == "PUT" or self.headers["Authorization"] == f"Bearer {TOKEN}"):
            return False
        self._answer({"error": "no <script>"}, status or 401)
        return True

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, value: Any, status: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass
