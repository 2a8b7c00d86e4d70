"""What requests wait for: computed together, in order, and not at all for those that have gone."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from greenadapt.server.batching import Batcher


class Panic(BaseException):
    """As those of tokenizers and tantivy, which are no ``Exception``."""


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
        if 14 in items:
            raise Panic("14")
        return [item * item for item in items]


def batches(scenario: Callable[[Blocked, Batcher[int, int]], Coroutine[Any, Any, None]], limit: int = 100) -> Any:
    """The batches that were computed while ``scenario`` ran."""
    blocked = Blocked()
    batcher = Batcher[int, int](blocked, lambda item: item, limit)
    try:
        asyncio.run(scenario(blocked, batcher))
        return blocked.batches
    finally:
        blocked.may.set()
        batcher.close()


async def first_begun(blocked: Blocked, batcher: Batcher[int, int], items: list[int]) -> "asyncio.Task[list[int]]":
    """A request whose first batch is being computed."""
    task = asyncio.create_task(batcher.results(items))
    await asyncio.to_thread(blocked.begun.wait, 30)
    return task


def test_what_waits_meanwhile_is_computed_together_and_one_failure_is_its_own() -> None:
    async def run(blocked: Blocked, batcher: Batcher[int, int]) -> None:
        first = await first_begun(blocked, batcher, [1])
        later = [asyncio.create_task(batcher.results(items)) for items in ([2, 3], [13], [14], [4])]
        await asyncio.sleep(0)
        blocked.may.set()
        assert await first == [1]
        async with asyncio.timeout(10):
            results = await asyncio.gather(*later, return_exceptions=True)
        assert (results[0], results[3]) == ([4, 9], [16])
        assert [type(result) for result in results[1:3]] == [ValueError, RuntimeError]

    assert batches(run)[:2] == [[1], [2, 3, 13, 14, 4]]


def test_what_nobody_waits_for_is_not_computed_and_too_much_is_refused() -> None:
    async def run(blocked: Blocked, batcher: Batcher[int, int]) -> None:
        first = await first_begun(blocked, batcher, [1])
        late = asyncio.create_task(batcher.results([2, 3]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.shield(late)
        with pytest.raises(HTTPException, match="503"):
            await batcher.results([4, 5])
        late.cancel()
        await asyncio.wait([late])
        later = asyncio.create_task(batcher.results([4, 5, 6]))  # there is room again at once
        await asyncio.sleep(0)
        blocked.may.set()
        assert await first == [1]
        assert await later == [16, 25, 36]

    assert batches(run, limit=3) == [[1], [4, 5, 6]]


def test_long_texts_go_alone() -> None:
    async def run(blocked: Blocked, batcher: Batcher[int, int]) -> None:
        first = await first_begun(blocked, batcher, [1])
        long = asyncio.create_task(batcher.results([10_000, 10_001, 5, 6]))
        await asyncio.sleep(0)
        blocked.may.set()
        await first
        assert (await long)[3] == 36

    assert batches(run) == [[1], [10_000], [10_001, 5, 6]]


def test_closing_does_not_wait_for_what_nobody_waits_for() -> None:
    async def run(blocked: Blocked, batcher: Batcher[int, int]) -> None:
        first = await first_begun(blocked, batcher, [1])
        closing = asyncio.create_task(asyncio.to_thread(batcher.close))
        await asyncio.wait([closing], timeout=10)
        has_closed = closing.done()
        with pytest.raises(HTTPException, match="503"):
            await batcher.results([2])
        blocked.may.set()
        assert await first == [1]
        assert has_closed

    batches(run)
