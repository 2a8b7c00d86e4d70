"""Items that are worked on together."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def grouped(items: Iterable[Item], size: Callable[[Item], int], enough: int, most: int) -> Iterator[list[Item]]:
    """``items`` in order, so many together that their sizes add up to ``enough``, or that they are ``most``."""
    group: list[Item] = []
    total = 0
    for one in items:
        group.append(one)
        total += size(one)
        if len(group) == most or total >= enough:
            yield group
            group, total = [], 0
    if group:
        yield group
