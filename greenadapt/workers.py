"""Work beside this thread: processes that end with their parent, and a thread that works ahead."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, TypeVar


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def launched_processes() -> tuple[int, int]:
    """Which process this is and of how many, where a launcher (accelerate, torchrun) started several: (0, 1) alone."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def worker_pool(workers: int, start: Callable[..., None] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """A pool of ``workers`` processes, each of which calls ``start(*arguments)`` first.

    They are spawned, since a fork copies locks that other threads hold.
    """
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, _start, (start, arguments))


def _start(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if start is not None:
        start(*arguments)


def _end_with_parent() -> None:
    """A parent that was killed cannot stop its pool, and the workers would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """``items`` in order, each made in a thread while the one before it is used: one waits at most.

    What ``items`` raises is raised in its place. To stop early, close this iterator: that waits for the item that is
    being made, and ends the thread.
    """
    with ThreadPoolExecutor(1, "ahead") as thread:
        following = thread.submit(_next, items)
        while made := following.result():
            following = thread.submit(_next, items)
            yield made[0]


def _next(items: Iterator[Item]) -> list[Item]:
    """The next item, nothing at the end."""
    return list(islice(items, 1))
