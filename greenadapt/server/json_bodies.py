"""The JSON of a request, read in a time that its size bounds."""

import codecs
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from greenadapt.server.wrong import place_of, unreadable

_MOST_NAMES = 32
"""Of an object: more than any request has. Validation would collect what is wrong with every name."""


class JsonRoute(APIRoute):
    """An address whose body is read by ``json_body``, with at most ``app.state.max_texts`` entries in each list."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, on a request that reads its own JSON."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_JsonRequest(request.scope, request.receive))

        return handle


class _JsonRequest(Request):
    async def json(self) -> Any:
        return json_body(await self.body(), self.app.state.max_texts)


def json_body(content: bytes, max_texts: int) -> Any:
    """The JSON value of a request's body.

    Raises ``HTTPException``: 400 for what is not JSON in UTF-8, is nested deeper than about 200 levels, or has half a
    character; 413 for a list of more than ``max_texts`` entries, or an object of too many names.
    """
    try:
        body = from_json(content.removeprefix(codecs.BOM_UTF8))
    except ValueError as error:
        raise HTTPException(400, unreadable(str(error))) from None
    if isinstance(body, dict):
        _check_names("the body", body)
        for name, value in body.items():
            _check_names(place_of([name]), value)
            _check_entries(name, value, max_texts)
    return body


def _check_entries(name: str, value: Any, max_texts: int) -> None:
    if not isinstance(value, list):
        return
    if len(value) > max_texts:
        n, most = f"{len(value):,}", f"{max_texts:,}"
        raise HTTPException(413, f"{place_of([name])} has {n} entries, the most is {most}: send several requests")
    for i, entry in enumerate(value):
        _check_names(place_of([name, i]), entry)


def _check_names(place: str, value: Any) -> None:
    if isinstance(value, dict) and (n := len(value)) > _MOST_NAMES:
        raise HTTPException(413, f"{place} has {n:,} names, the most is {_MOST_NAMES}: see /openapi.json")
