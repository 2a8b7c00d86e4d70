"""What is made ahead against what is made in turn, with errors and early ends."""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from greenadapt.errors import InputError
from greenadapt.workers import ahead


def threads() -> set[threading.Thread]:
    """Those that make items."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("ahead")}


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    before = threads()
    yield
    assert threads() <= before


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_all_items_come_in_order(n: int) -> None:
    assert list(ahead(iter(range(n)))) == [*range(n)]


def test_items_that_are_nothing_are_items() -> None:
    assert list(ahead(iter([None, 0, "", None]))) == [None, 0, "", None]


def test_the_next_item_is_made_while_one_is_used() -> None:
    makers, made = [], threading.Event()

    def items() -> Iterator[int]:
        for i in range(3):
            makers.append(threading.get_ident())
            if i == 1:
                made.set()
            yield i

    with closing(ahead(items())) as stream:
        assert next(stream) == 0
        assert made.wait(10)
    assert threading.get_ident() not in makers
    assert len(set(makers)) == 1


def test_one_item_waits_at_most() -> None:
    n_made = 0

    def items() -> Iterator[int]:
        nonlocal n_made
        while True:
            n_made += 1
            yield n_made

    with closing(ahead(items())) as stream:
        for used in range(1, 20):
            assert next(stream) == used
            assert n_made <= used + 1
    assert n_made == 20


def test_an_error_comes_in_its_place_and_ends_the_thread() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InputError("broken")

    before = threads()
    stream = ahead(items())
    assert next(stream) == 1
    with pytest.raises(InputError, match="broken"):
        next(stream)
    assert threads() <= before
    assert list(stream) == []


def test_an_error_in_its_use_ends_the_thread() -> None:
    before = threads()
    with pytest.raises(InputError), closing(ahead(iter(range(5)))) as stream:  # noqa: PT012
        for _ in stream:
            raise InputError("not wanted")
    assert threads() <= before


def test_nothing_starts_before_it_is_asked_for() -> None:
    before = threads()
    stream = ahead(iter(range(5)))
    assert threads() <= before
    stream.close()


def test_one_may_run_behind_another() -> None:
    before = threads()
    with closing(ahead(iter(range(100)))) as first, closing(ahead(i * i for i in first)) as second:
        assert [next(second) for _ in range(10)] == [i * i for i in range(10)]
    assert threads() <= before
