"""Numbers, sizes and kinds of values in messages."""

from typing import Any

import pytest

from greenadapt.wording import byte_size, counted, json_kind


def test_one_is_singular() -> None:
    assert [counted(n, "file") for n in (0, 1, 2, 12345)] == ["0 files", "1 file", "2 files", "12,345 files"]
    assert [counted(n, "row that does", "rows that do") for n in (1, 2)] == ["1 row that does", "2 rows that do"]


def test_sizes_never_take_an_exponent() -> None:
    sizes = (0, 1, 26, 99_999, 1_048_576, 4 << 30, 18_700_000_000)
    said = ["0 bytes", "1 byte", "26 bytes", "99,999 bytes", "1.0 MB", "4,295.0 MB", "18.7 GB"]
    assert list(map(byte_size, sizes)) == said


@pytest.mark.parametrize(
    ("value", "kind"),
    [(5, "a number"), (1.5, "a number with a fraction"), ("", "a string"), ([], "a list"), ({}, "an object"),
     (None, "null"), (True, "true"), (False, "false")],
)  # fmt: skip
def test_kinds_are_those_of_json(value: Any, kind: str) -> None:
    assert json_kind(value) == kind
