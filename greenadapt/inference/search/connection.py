"""Requests to an OpenSearch or Elasticsearch server: what both understand."""

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from greenadapt.errors import GreenadaptError, ServerError, UsageError, first_line
from greenadapt.storage.files import Json

LOGIN, API_KEY = "GREENADAPT_SEARCH_LOGIN", "GREENADAPT_SEARCH_API_KEY"
"""Variables of a login, ``user:password``, and of a key instead."""
DEFAULT_INDEX = "greenadapt"
BUSY = (429, 502, 503, 504)
"""Answers after which a request is made again."""
ATTEMPTS = 5
"""How often a request is made again in vain before it is given up."""
_BLOCK, _MOST = 1 << 16, 256 << 20
"""Bytes of an answer that are unpacked at once, and in all."""
_LONGEST_REASON = 200
_TIMEOUT = (10, 60)  # seconds to connect, and until the server answers
# As both servers want them; without what would name several indexes.
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,254}")
_LOGIN_HINT = f"set {LOGIN} (user:password) or {API_KEY}, or write the login to ~/.netrc"


def is_address(place: str) -> bool:
    """Whether this is an address, not a folder."""
    return place.startswith(("http://", "https://"))


class Connection:
    """One index of a server, by the address ``https://HOST:PORT/INDEX``; without a name the index is ``greenadapt``.

    Raises ``UsageError`` for what is no such address.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.username or parts.password:
            raise UsageError("an address with a login in it would be shown and kept", _LOGIN_HINT)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"{url} is not an address", "give one such as https://localhost:9200/papers")
        path, _, name = parts.path.rstrip("/").rpartition("/")
        self.name = name or DEFAULT_INDEX
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name} cannot be the name of an index", "use lower-case letters, digits, and . _ - inside"
            )
        self.root = f"{parts.scheme}://{parts.netloc}{path}"
        """The server."""
        self.place = f"{self.root}/{self.name}"
        self._session = _session()

    def ask(self, method: str, path: str = "", body: Json | bytes | None = None, **parameters: str) -> Any:
        """The server's answer to a request about the index; ``None`` if there is no such index.

        A body of bytes is lines of JSON. Raises ``ServerError`` if the server cannot be reached, is too busy for too
        long, or refuses.
        """
        import requests

        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        headers = {} if data is None else {"Content-Type": kind}
        url = f"{self.place}/{path}" if path else self.place
        try:
            with self._session.request(
                method, url, params=parameters, data=data, headers=headers, timeout=_TIMEOUT, stream=True,
                allow_redirects=False,
            ) as answer:  # fmt: skip
                said = _value(answer.iter_content(_BLOCK))
        except requests.RequestException as error:
            raise ServerError(
                f"{self.root} cannot be reached ({_why(error)})", "start the server, or check the address"
            ) from None
        status = answer.status_code
        if isinstance(said, dict) and (status < 300 or (status == 404 and "found" in said)):  # 404: not there
            return said
        if status == 404 and _error(said).get("type") == "index_not_found_exception":
            return None
        raise self._refused(status, said)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Raise ``ServerError`` if an answer that is read inside has not what it should have."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self._misunderstood(f"{type(error).__name__}: {error}") from None

    def _misunderstood(self, why: str) -> ServerError:
        reason = " ".join(why.split())[:_LONGEST_REASON]
        return ServerError(
            f"{self.root} does not answer as OpenSearch and Elasticsearch do ({reason})", "check the address"
        )

    def _refused(self, status: int, said: Any) -> GreenadaptError:
        reason = " ".join(str(_error(said).get("reason") or "").split())[:_LONGEST_REASON]
        if status == 401:
            wrong = "refuses the login" if self._session.auth else "wants a login, or refuses that of ~/.netrc"
            return ServerError(f"{self.root} {wrong}", _LOGIN_HINT)
        if not reason and status not in (403, 413, *BUSY):
            return self._misunderstood(f"status {status}")
        hint = "try again later; what was committed stays" if status in BUSY else ""
        return ServerError(f"{self.place} refuses with status {status} ({reason or 'no reason given'})", hint)


def _session() -> Any:
    """Keeps its connection, tries again if the server is busy, and sends the login."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    # Every request may be made twice: paragraphs have ids.
    retry = Retry(
        total=ATTEMPTS,
        connect=2,
        read=1,
        backoff_factor=0.5,
        status_forcelist=BUSY,
        allowed_methods=None,
        raise_on_status=False,
    )
    session = requests.Session()  # which reads ~/.netrc if there is no login
    session.auth = _login()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _login() -> Any:
    login, key = os.environ.get(LOGIN, ""), os.environ.get(API_KEY, "")
    if login and key:
        raise UsageError(f"{LOGIN} and {API_KEY} are both set", "unset one of them")
    if key:

        def send_key(request: Any) -> Any:
            request.headers["Authorization"] = f"ApiKey {key}"
            return request

        return send_key
    if not login:
        return None
    user, colon, password = login.partition(":")
    if not colon:
        raise UsageError(f"{LOGIN} has no colon", "write it as user:password")
    return user.encode(), password.encode()


def _error(said: Any) -> Json:
    """``type`` and ``reason`` of an error, as far as the server gives them."""
    error = said.get("error") if isinstance(said, dict) else None
    if isinstance(error, str):
        return {"reason": error}
    if not isinstance(error, dict):
        return {}
    causes = error.get("root_cause")
    cause = causes[0] if isinstance(causes, list) and causes and isinstance(causes[0], dict) else error
    return {name: cause.get(name) or error.get(name) for name in ("type", "reason")}


def _value(blocks: Iterable[bytes]) -> Any:
    """The JSON value of an answer; ``None`` for what is no JSON, or longer than any answer is."""
    content = bytearray()
    for block in blocks:
        content += block
        if len(content) > _MOST:
            return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _why(error: Exception) -> str:
    """The innermost reason, without what libraries put around it."""
    import requests

    if isinstance(error, requests.Timeout):
        return "it did not answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "its certificate is not trusted, REQUESTS_CA_BUNDLE names the file of another authority"
        return "it does not answer https://, perhaps http://"
    reason = first_line(getattr(error.args[0], "reason", error) if error.args else error)
    return re.sub(r"\[Errno -?\d+\] ", "", reason.rpartition("): ")[2].rpartition("connection: ")[2])
