"""One thread that computes what many requests wait for, together."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Found = TypeVar("Found")

# What is computed at once at most, one at least: a request that has gone leaves no more than this to be computed.
_MOST, _MOST_CHARACTERS = 64, 1 << 14
_MOMENT = 0.5  # seconds


class FullError(Exception):
    """Too much is waiting already."""


@dataclass(eq=False)
class _Waiting(Generic[Asked, Found]):
    asked: Asked
    size: int
    result: "Future[Found]" = field(default_factory=Future)


class Batcher(Generic[Asked, Found]):
    """Computes in a thread of its own, while requests arrive, all that is waiting, a batch at a time.

    ``compute`` gives a result for each of what is asked, in order; ``size`` is about how many characters one has, and
    ``limit`` the most that may wait.
    """

    def __init__(
        self, compute: Callable[[Sequence[Asked]], Sequence[Found]], size: Callable[[Asked], int], limit: int
    ) -> None:
        self._compute, self._size, self._limit = compute, size, limit
        self._queue: deque[_Waiting[Asked, Found]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="batches", daemon=True)
        self._thread.start()

    async def results(self, asked: Sequence[Asked]) -> list[Found]:
        """The result for each of ``asked``; what is not begun is left out if the caller is cancelled.

        Raises ``FullError`` if there is no room for all of them, and what ``compute`` raises (``RuntimeError`` for a
        panic of Rust).
        """
        waiting = [_Waiting[Asked, Found](one, self._size(one)) for one in asked]
        with self._changed:
            if self._is_closed or len(self._queue) + len(waiting) > self._limit:
                raise FullError
            self._queue.extend(waiting)
            self._changed.notify()
        try:
            return [await asyncio.wrap_future(one.result) for one in waiting]
        finally:
            with self._changed:
                gone = {one for one in waiting if one.result.cancel()}
                if gone:  # which take no other's place
                    self._queue = deque(one for one in self._queue if one not in gone)

    def close(self) -> None:
        """Drop what waits, and end the thread once it has computed what it is at; if that takes longer than a moment,
        it ends with the process.
        """
        with self._changed:
            self._is_closed = True
            for one in self._queue:
                one.result.cancel()
            self._queue.clear()
            self._changed.notify()
        self._thread.join(_MOMENT)

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            self._finish([one for one in batch if one.result.set_running_or_notify_cancel()])

    def _next(self) -> list[_Waiting[Asked, Found]] | None:
        """What is to be computed together, as soon as anything waits; ``None`` at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closed)
            if self._is_closed:
                return None
            batch = [self._queue.popleft()]
            size = batch[0].size
            while self._queue and len(batch) < _MOST and size + self._queue[0].size <= _MOST_CHARACTERS:
                batch.append(self._queue.popleft())
                size += batch[-1].size
            return batch

    def _finish(self, batch: list[_Waiting[Asked, Found]]) -> None:
        if not batch:
            return
        try:
            found = self._compute([one.asked for one in batch])
        except BaseException as error:  # a panic of Rust is no Exception
            if len(batch) == 1:
                batch[0].result.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
                return
            for one in batch:  # those that can be computed need not fail with the one that cannot
                self._finish([one])
            return
        for one, result in zip(batch, found, strict=True):
            one.result.set_result(result)
