"""Messages, bars and tables, on terminals of any width and in files."""

import io
import re
import warnings
from pathlib import Path

import pytest
from rich.cells import cell_len

from greenadapt.cli.output import console
from tests.conftest import Run, last_line


def test_a_log_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the speed after the first advance, which loads and compiles; from it alone nothing follows."""
    clock = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: clock)
    with console.make_progress().bar("training", 1000, "steps") as bar:
        for seconds, amount in ((70, 1), (70, 20), (3360, 979)):
            clock += seconds
            bar.advance(amount)
    first, second, whole = capsys.readouterr().err.splitlines()
    assert first == "training: 1 of 1k steps in 70 s (70 s/step)"
    assert second == "training: 21 of 1k steps in 140 s (3.5 s/step, about 57 minutes left)"
    assert whole == "training: 1k of 1k steps in 3500 s (3.5 s/step)"


def test_what_an_earlier_run_did_counts_but_makes_no_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.make_progress().bar("train", 100, "steps") as bar:
        bar.skip(40)
        now = 70.0
        bar.advance(35)
    first, last = capsys.readouterr().err.splitlines()
    assert first == last == "train: 75 of 100 steps in 70 s (2 s/step)"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


@pytest.mark.parametrize("width", ["120", "45"])
def test_a_bar_fits_the_terminal_and_ends_finished(monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    """Also where the total was an estimate, and more or less was done."""
    screen = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", width)
    for units in (7, 10, 13):
        with console.make_progress().bar("training [a]", 10, "words") as bar:
            bar.advance(units, epoch="1/2", lr="0.01")
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
        last = [line for line in re.split(r"[\r\n]", plain) if line.strip()][-1]
        assert last.startswith("train")
        assert "100%" in last
        assert width == "45" or ("training [a]" in last and "words/s" in last)
        assert len(last) <= int(width)
        assert "\x1b[31" not in screen.getvalue()  # red


def test_quiet_leaves_warnings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_is_quiet", True)
    progress = console.make_progress()
    progress.note("hello")
    progress.warn("careful")
    with progress.bar("training", 10, "words") as bar:
        bar.advance(10)
    console.say_loading(["model"])
    assert capsys.readouterr().err == "warning: careful\n"


def test_warnings_of_libraries_look_as_ours(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        console.warn_in_words()
        warnings.warn("this is\nold", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: this is old\n"


COLUMNS = ["stage", "time", "memory"]
ROWS = [["corpus", "1.5 s", "8 MB"], ["w2v", "100.0 s", "1,200 MB"]]


def test_a_table_has_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table("Cost", COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "Cost",
        " stage      time    memory",
        "───────────────────────────",
        " corpus    1.5 s      8 MB",
        " w2v     100.0 s  1,200 MB",
        "",
    ]
    console.print_table("", COLUMNS, [*ROWS, ["x" * 200, "[red]", "a\x1b[31mb"]], numbers=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["corpus", "1.5", "s", "8", "MB"]
    assert lines[-2].split()[:2] == ["x" * 200, "[red]"]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", [20, 80])
def test_on_a_terminal_nothing_is_wider_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("sys.stdout", screen := Terminal())
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    console.print_table("", COLUMNS, [*ROWS, ["漢" * 30, "ü", "y"]], numbers=False)
    lines = screen.getvalue().splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert screen.getvalue().count("漢") == 30


def test_verbose_says_what_is_set_where(run_alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_COST_JSON", "true")
    messages = run_alone("cost", "--verbose").stderr.splitlines()
    assert "greenadapt cost" in messages[0]
    assert messages[1:] == ["set GREENADAPT_COST_JSON: true"]
    assert run_alone("cost").stderr == ""
    assert "--verbose" in last_line(run_alone("cost", "-q", "-v", code=2))


@pytest.mark.parametrize(
    ("environment", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour(environment: dict[str, str], is_coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    console.make_progress().warn("careful")
    assert ("\x1b[33m" in screen.getvalue()) == is_coloured
