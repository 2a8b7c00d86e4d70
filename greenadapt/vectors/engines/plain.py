"""The operations of ``lanes.py`` on single numbers, in plain numba, for numba releases that break ``lanes.py``.

Slower, since LLVM vectorizes few of these loops. The order of sums differs, and so do the last bits of vectors.
"""

from typing import Any

from numba import njit

LANES = WIDE = 1


def _inlined(function: Any) -> Any:
    return njit(inline="always")(function)


@_inlined
def load(array: Any, row: Any, column: Any) -> Any:
    """``array[row, column]``"""
    return array[row, column]


@_inlined
def splat(number: Any) -> Any:
    """Return the number."""
    return number


@_inlined
def store(array: Any, row: Any, column: Any, number: Any) -> None:
    """Write a number."""
    array[row, column] = number


@_inlined
def add(a: Any, b: Any) -> Any:
    """a + b"""
    return a + b


@_inlined
def subtract(a: Any, b: Any) -> Any:
    """a - b"""
    return a - b


@_inlined
def multiply(a: Any, b: Any) -> Any:
    """a b"""
    return a * b


@_inlined
def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """a b + c"""
    return a * b + c


@_inlined
def divide(a: Any, b: Any) -> Any:
    """a / b"""
    return a / b


@_inlined
def total(number: Any) -> Any:
    """The number itself."""
    return number


@_inlined
def store_totals(array: Any, row: Any, numbers: Any) -> None:
    """Write numbers to the begin of a row."""
    for column in range(len(numbers)):
        array[row, column] = numbers[column]


@_inlined
def prefetch(array: Any, row: Any, column: Any) -> None:
    """Do nothing, since plain numba cannot prefetch."""


load_wide, splat_wide = load, splat
