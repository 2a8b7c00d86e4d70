"""What requests wait for: computed together, in order, and not at all for those that have gone."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from greenadapt.server.batching import Batcher, FullError


class Panic(BaseException):
    """As those of tokenizers and tantivy, which are no ``Exception``."""


class Blocked:
    """Computes squares once it may, and remembers what came together."""

    def __init__(self) -> None:
        self.may, self.begun = threading.Event(), threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, asked: Sequence[int]) -> list[int]:
        self.batches.append(list(asked))
        self.begun.set()
        assert self.may.wait(30)
        if 13 in asked:
            raise ValueError("13")
        if 14 in asked:
            raise Panic("14")
        return [one * one for one in asked]


@contextmanager
def batcher(limit: int = 100) -> Iterator[tuple[Blocked, Batcher[int, int]]]:
    blocked = Blocked()
    made = Batcher[int, int](blocked, lambda one: one, limit)
    try:
        yield blocked, made
    finally:
        blocked.may.set()
        made.close()


async def first_begun(blocked: Blocked, made: Batcher[int, int], asked: list[int]) -> "asyncio.Task[list[int]]":
    """A request whose first batch is being computed."""
    task = asyncio.create_task(made.results(asked))
    await asyncio.to_thread(blocked.begun.wait, 30)
    return task


def test_what_waits_meanwhile_is_computed_together_and_one_failure_is_its_own() -> None:
    async def run(blocked: Blocked, made: Batcher[int, int]) -> None:
        first = await first_begun(blocked, made, [1])
        others = [asyncio.create_task(made.results(asked)) for asked in ([2, 3], [13], [14], [4])]
        await asyncio.sleep(0)
        blocked.may.set()
        assert await first == [1]
        async with asyncio.timeout(10):
            found = await asyncio.gather(*others, return_exceptions=True)
        assert (found[0], found[3]) == ([4, 9], [16])
        assert [type(one) for one in found[1:3]] == [ValueError, RuntimeError]

    with batcher() as (blocked, made):
        asyncio.run(run(blocked, made))
        assert blocked.batches[:2] == [[1], [2, 3, 13, 14, 4]]


def test_what_nobody_waits_for_is_not_computed_and_too_much_is_refused() -> None:
    async def run(blocked: Blocked, made: Batcher[int, int]) -> None:
        first = await first_begun(blocked, made, [1])
        late = asyncio.create_task(made.results([2, 3]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.shield(late)
        with pytest.raises(FullError):
            await made.results([4, 5])
        late.cancel()
        await asyncio.wait([late])
        others = asyncio.create_task(made.results([4, 5, 6]))  # there is room again at once
        await asyncio.sleep(0)
        blocked.may.set()
        assert await first == [1]
        assert await others == [16, 25, 36]

    with batcher(limit=3) as (blocked, made):
        asyncio.run(run(blocked, made))
        assert blocked.batches == [[1], [4, 5, 6]]


def test_long_texts_go_alone() -> None:
    async def run(blocked: Blocked, made: Batcher[int, int]) -> None:
        first = await first_begun(blocked, made, [1])
        long = asyncio.create_task(made.results([10_000, 10_001, 5, 6]))
        await asyncio.sleep(0)
        blocked.may.set()
        await first
        assert (await long)[3] == 36

    with batcher() as (blocked, made):
        asyncio.run(run(blocked, made))
        assert blocked.batches == [[1], [10_000], [10_001, 5, 6]]


def test_closing_does_not_wait_for_what_nobody_waits_for() -> None:
    async def run(blocked: Blocked, made: Batcher[int, int]) -> None:
        first = await first_begun(blocked, made, [1])
        closing = asyncio.create_task(asyncio.to_thread(made.close))
        await asyncio.wait([closing], timeout=10)
        has_closed = closing.done()
        with pytest.raises(FullError):
            await made.results([2])
        blocked.may.set()
        assert await first == [1]
        assert has_closed

    with batcher() as (blocked, made):
        asyncio.run(run(blocked, made))
