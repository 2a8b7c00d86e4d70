"""An empty value, as of a shell variable that is not set, is no path: it would be the current folder."""

from tests.conftest import Run, last_line


def test_also_among_several_and_behind_an_equals_sign(run_alone: Run) -> None:
    for options in (("--text", "a.txt", "--text", ""), ("--text=",), ("--text", "a.txt", "-c", "")):
        assert " is empty: give it" in last_line(run_alone("pretrain", "-m", "minilm", *options, code=2))
    assert "WORDS is empty" in last_line(run_alone("neighbours", "heart", "", code=2))
