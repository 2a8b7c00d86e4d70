"""Lays out text for a terminal of some width, or for files, where each row is one line."""

import shutil
import sys
from collections.abc import Sequence

_GAP = "  "


def terminal_width() -> int | None:
    """Width of the terminal in columns; ``None`` if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, *, numbers: bool) -> list[str]:
    """A table of at most ``width`` columns: each row is a line, or if too wide a block with a line per cell.

    The first column is aligned to the left, the others to the right if they hold ``numbers``.
    """
    from rich.cells import cell_len

    cells = [columns, *rows]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(columns))]
    if width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) + 1 > width:
        return [line for row in rows for line in _block(columns, row, width)]

    def line(row: Sequence[str]) -> str:
        padded = [
            " " * (most - cell_len(cell)) + cell if numbers and i else cell + " " * (most - cell_len(cell))
            for i, (cell, most) in enumerate(zip(row, widths, strict=True))
        ]
        return f" {_GAP.join(padded)}".rstrip()

    rule = " " + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
    return [line(columns), rule, *map(line, rows)]


def wrapped(text: str, width: int | None) -> list[str]:
    """``text`` in equally indented lines of at most ``width`` columns, broken only at spaces: paths can be copied."""
    from rich.cells import cell_len

    start = text[: len(text) - len(text.lstrip())]
    return [text] if width is None or cell_len(text) <= width else _filled(text.split(), width, start, start)


def hanging(first: str, text: str, width: int | None) -> list[str]:
    """``first`` and ``text`` in lines of at most ``width`` columns, the later ones indented as wide as ``first``."""
    if width is None or len(first) + len(text) <= width:
        return [first + text]
    return _filled(text.split(), width, first, " " * len(first))


def _block(columns: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """A row as its first cell, and below it a line for each other one that holds something."""
    names = max(map(len, columns[1:]), default=0)
    lines = wrapped(f" {row[0] or '-'}", width)
    for name, cell in zip(columns[1:], row[1:], strict=True):
        first = f"   {name.ljust(names)}{_GAP}"
        lines += _filled(cell.split(), width, first, " " * len(first)) if cell else []
    return lines


def _filled(words: Sequence[str], width: int, first: str, rest: str) -> list[str]:
    """``words`` in as few lines as they need, which begin with ``first`` and ``rest``."""
    from rich.cells import cell_len

    lines = [first + words[0]] if words else []
    for word in words[1:]:
        if cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(rest + word)
    return lines
