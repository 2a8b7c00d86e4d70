"""Numbers, sizes and kinds of values in messages."""

import ast
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import typer

import greenadapt
from greenadapt.cli import app
from greenadapt.cli.settings import commands_of
from greenadapt.errors import (
    InputError,
    UsageError,
    as_decimal,
    as_percent,
    byte_size,
    first_line,
    harmless,
    harmless_json,
    json_kind,
    one_line,
    pluralize,
)


def test_a_message_and_a_hint_are_one_line_each_and_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(InputError("a.txt has 2 columns, need 3", "use --field")))
    assert type(error) is InputError
    assert (error.message, error.hint) == ("a.txt has 2 columns, need 3", "use --field")
    assert str(error) == "a.txt has 2 columns, need 3: use --field"
    assert str(InputError("alone")) == "alone"
    assert (InputError("x").exit_code, UsageError("x").exit_code) == (1, 2)


def test_another_library_s_error_is_one_line() -> None:
    errors = OSError("gone\nfor good"), KeyError(), ValueError(" \n ")
    assert [*map(first_line, errors)] == ["gone", "KeyError", "ValueError"]


def test_the_middle_of_a_very_long_message_is_left_out() -> None:
    error = InputError(f"a.csv has no column text, it has: {'x' * 10**6}, last", "choose one")
    assert len(str(error)) < 1400
    assert str(error).startswith("a.csv has no column text")
    assert str(error).endswith(", last: choose one")


def test_one_is_singular() -> None:
    assert [pluralize(n, "file") for n in (0, 1, 2, 12345)] == ["0 files", "1 file", "2 files", "12,345 files"]
    assert [pluralize(n, "row that does", "rows that do") for n in (1, 2)] == ["1 row that does", "2 rows that do"]


def test_sizes_never_take_an_exponent() -> None:
    sizes = (0, 1, 26, 99_999, 1_048_576, 4 << 30, 18_700_000_000)
    texts = ["0 bytes", "1 byte", "26 bytes", "99,999 bytes", "1.0 MB", "4,295.0 MB", "18.7 GB"]
    assert list(map(byte_size, sizes)) == texts


def test_scores_are_rounded_half_up_by_the_decimal_number_that_is_meant() -> None:
    assert as_decimal(30.65, 1) == "30.7"  # format() gives 30.6: the float is a little less
    for n in range(100_000):  # hundredths of points, with whole numbers as the judge
        tenths = (n + 5) // 10
        expected = f"{tenths // 10}.{tenths % 10}"
        assert (
            as_decimal(n / 100, 1)
            == as_decimal(n / 10_000, 1, percent=True)
            == as_decimal(100 * (n / 10_000), 1)
            == expected
        )
    assert as_decimal(32.25 - 30.6, 1, signed=True) == "+1.7"  # 1.6499999999999986
    assert [as_decimal(-0.25, 1), as_decimal(0.25, 1, signed=True), as_decimal(0, 1)] == [
        "-0.3",
        "+0.3",
        "0.0",
    ]
    assert [as_percent(0.0625), as_percent(0.125, 0), as_decimal(float("nan"), 1)] == ["6.3%", "13%", "nan"]


def test_kinds_are_those_of_json() -> None:
    kinds = ["a number", "a number with a fraction", "a string", "a list", "an object", "null", "true", "false"]
    assert [*map(json_kind, (5, 1.5, "", [], {}, None, True, False))] == kinds


def test_texts_that_are_shown_control_nothing() -> None:
    text = "a\x1b[2J\x9b1m\u202ebc\u2069\u200f\ud800\tde\nf"
    assert harmless(text) == "a\ufffd[2J\ufffd1m\ufffdbc\ufffd\ufffd\ufffd\tde\nf"
    assert harmless("naïve 日本 \u200c\u200d 🦠") == "naïve 日本 \u200c\u200d 🦠"
    assert one_line(text) == "a\ufffd[2J\ufffd1m\ufffdbc\ufffd\ufffd\ufffd de f"
    assert one_line("  a\r\nb\u2028c\u2029\x85d\ufffe\uffff\0") == "  a b c d\ufffd\ufffd\ufffd"
    written = harmless_json(json.dumps([text], ensure_ascii=False))
    assert written.isascii()
    assert json.loads(written) == [text]
    assert harmless_json('["a\u2028b"]').splitlines() == [r'["a\u2028b"]']


# What messages name


OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OPTIONS = {
    name
    for command in commands_of(typer.main.get_command(app)).values()
    for parameter in command.params
    for name in (*parameter.opts, *parameter.secondary_opts)
}
NOT_CHECKED = {  # of ray, tar and pip, and of all commands
    *("--head", "--dereference", "--hard-dereference", "--no-deps", "--force-reinstall"),
    *("--help", "--version"),
}


def texts_of(module: Path) -> Iterator[str]:
    """All texts of a module but docstrings and what declares options."""

    def below(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            declares = isinstance(child, ast.Call) and getattr(child.func, "id", "") in ("option", "basic", "examples")
            if isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield child.value
            elif not (declares or (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant))):
                yield from below(child)

    return below(ast.parse(module.read_text("utf-8")))


def test_an_option_that_a_message_names_exists() -> None:
    package, wrong, n_checked = Path(greenadapt.__file__).parent, [], 0
    for module in sorted(package.rglob("*.py")):
        for text in texts_of(module) if module.parts[-2:] != ("report", "page.py") else ():  # which has CSS
            options = {*OPTION.findall(text)} - NOT_CHECKED
            n_checked += len(options)
            wrong += [f"{module.name}: {option}: {text}" for option in options - OPTIONS]
    assert wrong == []
    assert n_checked > 100
