"""One thread that computes what many requests wait for, together."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from starlette.exceptions import HTTPException

Item = TypeVar("Item")
Output = TypeVar("Output")

# Limits of a batch, which has one item at least: a cancelled request leaves no more than this to be computed.
_MOST, _MOST_CHARACTERS = 64, 1 << 14
_MOMENT = 0.5  # seconds


@dataclass(eq=False)
class _Job(Generic[Item, Output]):
    item: Item
    size: int
    result: "Future[Output]" = field(default_factory=Future)


class Batcher(Generic[Item, Output]):
    """Computes waiting items in a thread of its own, a batch at a time, while requests arrive.

    ``compute`` gives an output for each item, in order; ``size`` is about the number of an item's characters, and
    ``limit`` the number of items that may wait.
    """

    def __init__(
        self, compute: Callable[[Sequence[Item]], Sequence[Output]], size: Callable[[Item], int], limit: int
    ) -> None:
        self._compute, self._size, self._limit = compute, size, limit
        self._queue: deque[_Job[Item, Output]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="batches", daemon=True)
        self._thread.start()

    async def results(self, items: Sequence[Item]) -> list[Output]:
        """The output for each of ``items``; if the caller is cancelled, items that wait are dropped.

        Raises ``HTTPException`` (503) if there is no room for all of them, and what ``compute`` raises
        (``RuntimeError`` for a panic of Rust).
        """
        jobs = [_Job[Item, Output](item, self._size(item)) for item in items]
        with self._changed:
            if self._is_closed or len(self._queue) + len(jobs) > self._limit:
                raise HTTPException(503, "too much is waiting: try again")
            self._queue.extend(jobs)
            self._changed.notify()
        try:
            return [await asyncio.wrap_future(job.result) for job in jobs]
        finally:
            with self._changed:
                cancelled = {job for job in jobs if job.result.cancel()}
                if cancelled:  # they make room for others
                    self._queue = deque(job for job in self._queue if job not in cancelled)

    def close(self) -> None:
        """Drop waiting items, and end the thread after its current batch.

        If that takes longer than a moment, the thread ends with the process.
        """
        with self._changed:
            self._is_closed = True
            for job in self._queue:
                job.result.cancel()
            self._queue.clear()
            self._changed.notify()
        self._thread.join(_MOMENT)

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            self._finish([job for job in batch if job.result.set_running_or_notify_cancel()])

    def _next(self) -> list[_Job[Item, Output]] | None:
        """The next batch, as soon as an item waits; ``None`` at the end."""
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

    def _finish(self, batch: list[_Job[Item, Output]]) -> None:
        if not batch:
            return
        try:
            outputs = self._compute([job.item for job in batch])
        except BaseException as error:  # a panic of Rust is no Exception
            if len(batch) == 1:
                batch[0].result.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
                return
            for job in batch:  # an item that fails does not fail the others
                self._finish([job])
            return
        for job, output in zip(batch, outputs, strict=True):
            job.result.set_result(output)
