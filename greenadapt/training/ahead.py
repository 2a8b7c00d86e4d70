"""Work that is done in a thread while what came before it is used."""

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

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
