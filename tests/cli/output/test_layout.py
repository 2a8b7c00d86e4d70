"""Tables and text on terminals of any width: nothing is cut, and nothing is wider."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from greenadapt.cli.output.console import table, wrapped

COLUMNS = ["stage", "time", "memory"]
ROWS = [["corpus", "1.5 s", "8 MB"], ["w2v", "100.0 s", "1,200 MB"]]


@pytest.mark.parametrize("width", [None, 26, 200])
def test_a_table_that_fits_has_a_line_a_row(width: int | None) -> None:
    assert table(COLUMNS, ROWS, width, numbers=True) == [
        " stage      time    memory",
        " ─────────────────────────",
        " corpus    1.5 s      8 MB",
        " w2v     100.0 s  1,200 MB",
    ]
    assert table(COLUMNS, ROWS, None, numbers=False)[2] == " corpus  1.5 s    8 MB"


def test_a_table_that_does_not_fit_has_a_block_a_row() -> None:
    assert table(COLUMNS, [*ROWS, ["", "", "3 MB"]], 25, numbers=True) == [
        " corpus",
        "   time    1.5 s",
        "   memory  8 MB",
        " w2v",
        "   time    100.0 s",
        "   memory  1,200 MB",
        " -",
        "   memory  3 MB",
    ]


@pytest.mark.slow
@given(
    rows=st.lists(st.lists(st.lists(st.text("aü漢", min_size=1, max_size=9)), min_size=3, max_size=3), max_size=4),
    width=st.sampled_from([45, 80]),
)
def test_nothing_is_wider_than_the_terminal_and_nothing_is_lost(rows: list[list[list[str]]], width: int) -> None:
    cells = [[" ".join(words) for words in row] for row in rows]
    lines = table(COLUMNS, cells, width, numbers=False)
    assert all(cell_len(line) <= width for line in lines)
    shown = Counter(word for line in lines for word in line.split())
    assert not Counter(word for row in rows for words in row for word in words) - shown


def test_text_is_broken_at_spaces_and_paths_are_not_broken() -> None:
    assert wrapped("  one two /a/very-long/path", 9) == ["  one two", "  /a/very-long/path"]
    assert wrapped("one two", 9) == ["one two"]
    assert wrapped("one two three", None) == ["one two three"]
