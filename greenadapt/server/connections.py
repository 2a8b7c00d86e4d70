"""Connections of clients: how long each may take, and which one goes if there are too many."""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST = 1024
_RESERVED = 256
"""File descriptors for models, an index and what else a worker opens."""


class Connection(H11Protocol):
    """A connection that is closed if its client takes too long.

    A request's headers have to come within ``ARRIVAL`` seconds of the connection, or of the last answer; bytes that
    come one by one do not prolong it. Its body, and what it is answered, have the time that a request also has when the
    server stops, and then ``ARRIVAL`` more.

    With ``limit_concurrency`` connections a new one takes the place of the one that has waited longest for its client:
    for the rest of a request, or for the next one. Requests that have arrived are never given up.
    """

    ARRIVAL = 10.0
    """Seconds."""

    _deadline: asyncio.TimerHandle | None = None
    _began = 0.0
    """When the current deadline was set."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room, and wait for the first request."""
        if self.limit_concurrency is not None:
            self._close_oldest(len(self.connections) + 2 - self.limit_concurrency)
        super().connection_made(transport)
        self._end_after(self.ARRIVAL)

    def handle_events(self) -> None:
        """Take in what came; a request that has begun has another deadline."""
        before, limit = self.cycle, self.limit_concurrency
        if limit is not None and len(self.connections) < limit:
            # uvicorn also counts tasks of connections that were closed to make room, which end a moment later.
            self.limit_concurrency = None
        try:
            super().handle_events()
        finally:
            self.limit_concurrency = limit
        if self.cycle is not before:
            self._end_after(self.ARRIVAL + (self.config.timeout_graceful_shutdown or 0))

    def on_response_complete(self) -> None:
        """Wait for the next request, and for the client to take the answer."""
        self._end_after(self.ARRIVAL)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    @property
    def _waits(self) -> bool:
        """Whether it is the client's turn."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _end_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._began = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _close_oldest(self, n: int) -> None:
        if n < 1:
            return
        waiting: list[Any] = [one for one in self.connections if isinstance(one, Connection) and one._waits]
        for one in sorted(waiting, key=lambda one: one._began)[:n]:
            self.connections.discard(one)
            one.transport.abort()


def most_connections() -> int:
    """How many connections a worker takes, as far as the system lets it open files; the soft limit on these is raised
    as needed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST + _RESERVED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(wanted - _RESERVED, wanted // 2)
