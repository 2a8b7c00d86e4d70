"""Items of many requests are computed together, in order; one that fails fails alone, and the queue is bounded."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from greenadapt.server import batching
from greenadapt.server.batching import MicroBatcher


class Blocked:
    """Computes squares once it may, and remembers what came together."""

    def __init__(self) -> None:
        self.may, self.begun = threading.Event(), threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.begun.set()
        assert self.may.wait(30)
        if 13 in items:
            raise ValueError("13")
        return [item * item for item in items]


def batches(scenario: Callable[[Blocked, MicroBatcher, Any], Coroutine[Any, Any, None]]) -> list[list[int]]:
    """The batches that are computed while ``scenario`` runs, after a first one of ``[1]`` has begun."""

    async def run() -> None:
        blocked = Blocked()
        batcher = MicroBatcher(blocked)
        task = asyncio.create_task(batcher.run())
        first = asyncio.create_task(batcher.results([1], [1]))
        await asyncio.to_thread(blocked.begun.wait, 30)
        await scenario(blocked, batcher, first)
        task.cancel()
        made.extend(blocked.batches)

    made: list[list[int]] = []
    asyncio.run(run())
    return made


def test_waiting_items_are_computed_together_and_one_failure_is_its_own() -> None:
    async def scenario(blocked: Blocked, batcher: MicroBatcher, first: Any) -> None:
        later = [asyncio.create_task(batcher.results(items, items)) for items in ([2, 3], [13], [4])]
        await asyncio.sleep(0)
        blocked.may.set()
        results = await asyncio.gather(first, *later, return_exceptions=True)
        assert [results[0], results[1], results[3]] == [[1], [4, 9], [16]]
        assert isinstance(results[2], ValueError)

    assert batches(scenario) == [[1], [2, 3, 13, 4], [2], [3], [13], [4]]


def test_a_batch_is_bounded_and_so_is_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_QUEUE", 4)
    monkeypatch.setattr(batching, "_MAX_CHARS", 10)

    async def scenario(blocked: Blocked, batcher: MicroBatcher, first: Any) -> None:
        waiting = asyncio.create_task(batcher.results([2, 3, 4, 5], [6, 6, 6, 6]))
        await asyncio.sleep(0)
        with pytest.raises(HTTPException) as refused:
            await batcher.results([6], [1])
        assert (refused.value.status_code, refused.value.headers) == (503, {"Retry-After": "1"})
        blocked.may.set()
        assert await waiting == [4, 9, 16, 25]
        assert await first == [1]

    assert batches(scenario) == [[1], [2, 3], [4, 5]]
