"""Tables as the benchmarks print them."""

from collections.abc import Sequence

from greenadapt.errors import as_decimal
from greenadapt.tasks.metrics import Difference


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also stand below each other as they are; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    cells = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (rows[0], rule, *rows[1:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def with_interval(difference: Difference) -> str:
    """A difference in points and its 95 % interval."""
    return points_with_interval(difference.difference, difference.low, difference.high, digits=1)


def points_with_interval(difference: float, low: float, high: float, *, digits: int = 2) -> str:
    """A difference of shares in points and the bounds of its interval."""
    points = [as_decimal(share, digits, percent=True, signed=True) for share in (difference, low, high)]
    return f"{points[0]} ({points[1]} to {points[2]})"
