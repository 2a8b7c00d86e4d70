"""Tables and text on terminals of any width: nothing is cut, and nothing is wider."""

import io
import json
import re
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Task, TaskID

from greenadapt.cli.output import bars as bar_module
from greenadapt.cli.output import console
from greenadapt.cli.output.console import Speed, table, wrapped
from greenadapt.store.results import Job, Outcome, Place, run
from tests.conftest import Run, last_line


def test_a_log_gets_plain_lines_and_stdout_stays_clean(capsys: pytest.CaptureFixture[str]) -> None:
    progress = console.make_progress()
    progress.note("hello")
    progress.warn("careful")
    with progress.bar("training", 2_000_000, "words") as bar:
        bar.advance(1_000_000)
        bar.advance(1_000_000, lr="0.01")
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[:2] == ["hello", "warning: careful"]
    assert lines[2].startswith("training: 2M of 2M words in ")
    assert lines[2].endswith("words/s, lr 0.01)")


def test_a_log_says_how_long_it_will_take(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: clock)
    with console.make_progress().bar("training", 10, "words") as bar:
        clock += 70
        bar.advance(2)
        clock += 280
        bar.advance(8)
    half, whole = capsys.readouterr().err.splitlines()
    assert half == "training: 2 of 10 words in 70 s (35 s/word, about 280 s left)"
    assert whole == "training: 10 of 10 words in 350 s (35 s/word)"


def test_a_log_says_how_fast_the_last_minute_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 words in 10 minutes, then ten times as many: at the end of each line the speed of all is none of both."""
    clock = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: clock)
    with console.make_progress().bar("training", 3300, "words") as bar:
        for amount in (0.5, 5):
            for _ in range(600):
                clock += 1
                bar.advance(amount)
    lines = capsys.readouterr().err.splitlines()
    assert "(2 s/word, about 6539 s left)" in lines[0]
    assert lines[-1] == "training: 3.3k of 3.3k words in 1200 s (2.75 words/s)"
    speeds = [re.findall(r"\((.*), about (\d+) s left\)", line) for line in lines[:-1]]
    assert [speed for [(speed, _)] in speeds[11:]] == ["5 words/s"] * len(speeds[11:])
    [(_, remaining)], elapsed = speeds[-1], int(re.findall(r"in (\d+) s", lines[-2])[0])
    assert int(remaining) == 1200 - elapsed


def on_a_clock(clock: list[float], width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, get_time=lambda: clock[0], color_system=None)


def test_a_bar_says_how_fast_the_last_minute_was() -> None:
    clock = [0.0]
    terminal = on_a_clock(clock)
    with bar_module.drawn_bar(terminal, "training", 4000, "words") as bar:
        for amount, seconds in ((1, 600), (10, 100)):
            for _ in range(seconds * 10):  # updates ten times a second
                clock[0] += 0.1
                bar.advance(amount / 10)
        clock[0] += 1  # a column is drawn anew after a moment
        plain = Console(file=io.StringIO(), width=100, color_system=None)
        plain.print(terminal._live_stack[0].get_renderable())
        drawn = plain.file.getvalue()  # type: ignore[attr-defined]
        assert "10 words/s" in drawn
        assert "11:41, 4:00 left" in drawn  # 2,400 words at 10 a second


def test_steps_that_take_longer_than_a_minute_have_a_speed() -> None:
    speed = Speed(0)
    assert speed.seconds_of(1) is None
    for units, seconds in enumerate((100, 200, 500), start=1):
        speed.mark(seconds, units)
        assert speed.recent == (1, 300 if seconds == 500 else 100)
    assert speed.seconds_of(2) == 600


def test_a_log_never_counts_beyond_an_estimated_total(capsys: pytest.CaptureFixture[str]) -> None:
    with console.make_progress().bar("splitting", 109_000, "bytes") as bar:
        bar.advance(168_000)
    assert capsys.readouterr().err.startswith("splitting: 168k bytes in ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


@pytest.mark.parametrize(("width", "facts"), [("120", "words/s  epoch 1/2  lr 0.01"), ("45", "words/s")])
def test_a_bar_fits_the_terminal_and_ends_finished(monkeypatch: pytest.MonkeyPatch, width: str, facts: str) -> None:
    """Also where the total was an estimate, and more or less was done."""
    screen = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", width)
    for units in (7, 10, 13):
        with console.make_progress().bar("training", 10, "words") as bar:
            bar.advance(units, epoch="1/2", lr="0.01")
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
        last = [line for line in re.split(r"[\r\n]", plain) if line.strip()][-1]
        assert re.fullmatch(rf"training [━ ]*100%  \S+ {facts}(  epoch 1/2)?  0:00", last), last
        assert len(last) <= int(width)
        assert "\x1b[31" not in screen.getvalue()  # red


def test_a_bar_says_how_long_it_took() -> None:
    clock = 1000.0
    task = Task(TaskID(0), "training", 100, 25, _get_time=lambda: clock, fields={"facts": [], "speed": Speed(995.0)})
    task.start_time = 995.0
    assert bar_module._time(task) == "0:05"
    task.finished_time = 3725.0
    assert bar_module._time(task) == "1:02:05"


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


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"word": "Ärzte\n", "n": 1})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"word": "Ärzte\n", "n": 1}


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (5, "5"), (999.94, "1k"), (1234, "1.23k"), (12_345_678, "12.3M"), (7e12, "7T")]
)
def test_short_numbers(number: float, text: str) -> None:
    assert console.compact(number) == text


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
    words_printed = Counter(word for line in lines for word in line.split())
    assert not Counter(word for row in rows for words in row for word in words) - words_printed


def test_text_is_broken_at_spaces_and_paths_are_not_broken() -> None:
    assert wrapped("  one two /a/very-long/path", 9) == ["  one two", "  /a/very-long/path"]
    assert wrapped("one two", 9) == ["one two"]
    assert wrapped("one two three", None) == ["one two three"]


def test_details_say_how_long_a_stage_took_and_where_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_is_quiet", True)
    console.show_details()
    try:
        for _ in range(2):
            run(Place(tmp_path / "align"), Job("align", {}, {}, lambda folder: Outcome({})), console.make_progress())
    finally:
        console.hide_details()
    [took] = capsys.readouterr().err.splitlines()
    assert f" s, wrote {tmp_path / 'align'}" in took


def test_verbose_says_what_is_set_where(run_alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_COST_JSON", "true")
    messages = run_alone("cost", "--verbose").stderr.splitlines()
    assert "greenadapt cost" in messages[0]
    assert messages[1:] == ["set GREENADAPT_COST_JSON: true"]
    assert run_alone("cost").stderr == ""
    assert "--verbose" in last_line(run_alone("cost", "-q", "-v", code=2))


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "environment", "colour"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour(terminal: bool, environment: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a bar is drawn on a terminal only."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", stream := Stream(terminal))
    progress = console.make_progress()
    progress.warn("careful")
    assert ("\x1b[33m" in stream.getvalue()) == colour
    with progress.bar("training", 10, "words") as bar:
        bar.advance(10)
    assert ("━" in stream.getvalue()) == terminal
    after = stream.getvalue().split("careful")[1].removeprefix("\x1b[0m")
    assert ("\x1b[3" in after) == (colour and terminal)
