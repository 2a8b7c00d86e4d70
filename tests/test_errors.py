import pickle

import pytest

from greenadapt.errors import InputError, UsageError, first_line


def test_a_message_and_a_hint_are_one_line_each_and_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(InputError("a.txt has 2 columns, need 3", "use --field")))
    assert type(error) is InputError
    assert (error.message, error.hint) == ("a.txt has 2 columns, need 3", "use --field")
    assert str(error) == "a.txt has 2 columns, need 3: use --field"
    assert str(InputError("alone")) == "alone"
    assert (InputError("x").exit_code, UsageError("x").exit_code) == (1, 2)


@pytest.mark.parametrize(
    ("error", "line"),
    [(OSError("gone\nfor good"), "gone"), (KeyError(), "KeyError"), (ValueError(" \n "), "ValueError")],
)
def test_another_library_s_error_is_one_line(error: Exception, line: str) -> None:
    assert first_line(error) == line


def test_the_middle_of_a_very_long_message_is_left_out() -> None:
    error = InputError(f"a.csv has no column text, it has: {'x' * 10**6}, last", "choose one")
    assert len(str(error)) < 1400
    assert str(error).startswith("a.csv has no column text")
    assert str(error).endswith(", last: choose one")
