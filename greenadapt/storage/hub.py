"""Calls of the model hub's library, if something else than a hub answers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from greenadapt.errors import GreenadaptError, MissingError, first_line

_log = logging.getLogger(__name__)
_API = "/api/"
"""In the path of everything but files, which the library writes to disk as they come."""
_MOST, _MOST_PACKED = 64 << 20, 256 << 10
"""Bytes of an answer; of a compressed one, which may be a thousand times as many."""

_UNREACHED = (
    *("ConnectError", "ConnectTimeout", "ReadError", "ReadTimeout", "WriteError", "WriteTimeout", "PoolTimeout"),
    *("CloseError", "ProxyError", "RemoteProtocolError"),
)
"""Names of errors of the network, those of httpx or its successor, whichever the hub's library uses."""


@contextmanager
def hub_answers() -> Iterator[None]:
    """Raise ``MissingError`` if the hub's library, which alone is called inside, reaches no model hub.

    Its refusals pass, as the library raises them. It parses whatever an address answers, of any size; answers that are
    larger than those of a hub are not read.
    """
    from huggingface_hub import constants, errors

    try:
        with _bounded_answers():
            yield
    except (GreenadaptError, OSError, errors.HFValidationError):
        raise
    except Exception as error:  # KeyError, RecursionError, whatever its parsing ends in
        if "README.md" in str(error):  # a card that the hub refuses, a ValueError
            raise
        if type(error).__name__ in _UNREACHED:
            raise MissingError(
                f"the model hub could not be reached at {constants.ENDPOINT} ({first_line(error)})",
                "check the network, and HF_ENDPOINT",
            ) from None
        _log.debug("the hub's library failed", exc_info=True)
        raise MissingError(
            f"{constants.ENDPOINT} does not answer as a model hub does", "check HF_ENDPOINT, and the proxy if any"
        ) from None


@contextmanager
def _bounded_answers() -> Iterator[None]:
    from huggingface_hub import get_session

    client: Any = get_session()
    if not hasattr(client, "event_hooks"):  # of huggingface_hub 0, which has requests
        yield
        return
    before = client.event_hooks
    client.event_hooks = {
        "request": [*before["request"], _ask_plainly],
        "response": [*before["response"], _bound],
    }
    try:
        yield
    finally:
        client.event_hooks = before


class _TooLargeError(Exception):
    pass


def _bounded(stream: Any, max_bytes: int) -> Any:
    """The stream of an answer, which ends in an error beyond ``max_bytes`` bytes."""
    base: Any = type(stream)  # of httpx or its successor, whichever the hub's library uses

    class Bounded(base):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def __iter__(self) -> Iterator[bytes]:
            n = 0
            for block in stream:
                n += len(block)
                if n > max_bytes:
                    raise _TooLargeError
                yield block

        def close(self) -> None:
            stream.close()

    return Bounded()


def _ask_plainly(request: Any) -> None:
    if _API in request.url.path:
        request.headers["Accept-Encoding"] = "identity"


def _bound(response: Any) -> None:
    if _API not in response.request.url.path:
        return
    packed = response.headers.get("content-encoding", "identity").lower()
    if packed not in ("identity", "gzip", "deflate"):
        raise _TooLargeError
    response.stream = _bounded(response.stream, _MOST if packed == "identity" else _MOST_PACKED)
