"""One thread that computes the texts of many requests together."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.exceptions import HTTPException

MAX_QUEUE = 512
"""Items that may wait."""
# Limits of a batch, which has one item at least.
_MAX_ITEMS, _MAX_CHARS = 64, 1 << 14


class MicroBatcher:
    """Computes waiting items a batch at a time, while requests arrive.

    ``compute`` gives an output for each item, in order.
    """

    def __init__(self, compute: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._compute = compute
        self._queue: asyncio.Queue[tuple[Any, int, asyncio.Future[Any]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "batches")

    async def results(self, items: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        """The output for each of ``items``, which have about ``sizes`` characters.

        Raises ``HTTPException`` (503) if there is no room for all of them, and what ``compute`` raises.
        """
        if self._queue.qsize() + len(items) > MAX_QUEUE:
            raise HTTPException(503, "too many texts are waiting: try again", {"Retry-After": "1"})
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Any]] = [loop.create_future() for _ in items]
        for entry in zip(items, sizes, futures, strict=True):
            self._queue.put_nowait(entry)
        return await asyncio.gather(*futures)

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the thread that computes."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def run(self) -> None:
        """Compute batches until the task is cancelled."""
        while True:
            item, size, future = await self._queue.get()
            batch = [(item, future)]
            while not self._queue.empty() and len(batch) < _MAX_ITEMS and size < _MAX_CHARS:
                item, n_chars, future = self._queue.get_nowait()
                batch.append((item, future))
                size += n_chars
            await self._finish(batch)

    async def _finish(self, batch: Sequence[tuple[Any, "asyncio.Future[Any]"]]) -> None:
        batch = [(item, future) for item, future in batch if not future.done()]  # a client may have gone
        try:
            outputs = await self.call(self._compute, [item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:  # an item that fails does not fail the others
                for pair in batch:
                    await self._finish([pair])
            return
        for (_, future), output in zip(batch, outputs, strict=True):
            if not future.done():
                future.set_result(output)
