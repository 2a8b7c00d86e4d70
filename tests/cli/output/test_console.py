import io
import json
import re
import warnings

import pytest
from rich.console import Console
from rich.progress import Task, TaskID

from greenadapt.cli.output import console
from greenadapt.cli.output import console as bar_module
from greenadapt.cli.output.console import Speed


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
    now = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.make_progress().bar("training", 10, "words") as bar:
        now += 70
        bar.advance(2)
        now += 280
        bar.advance(8)
    half, done = capsys.readouterr().err.splitlines()
    assert half == "training: 2 of 10 words in 70 s (35 s/word, about 280 s left)"
    assert done == "training: 10 of 10 words in 350 s (35 s/word)"


def test_a_log_says_how_fast_the_last_minute_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 words in 10 minutes, then ten times as many: at the end of each line the speed of all is none of both."""
    now = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.make_progress().bar("training", 3300, "words") as bar:
        for amount in (0.5, 5):
            for _ in range(600):
                now += 1
                bar.advance(amount)
    lines = capsys.readouterr().err.splitlines()
    assert "(2 s/word, about 6539 s left)" in lines[0]
    assert lines[-1] == "training: 3.3k of 3.3k words in 1200 s (2.75 words/s)"
    speeds = [re.findall(r"\((.*), about (\d+) s left\)", line) for line in lines[:-1]]
    assert [speed for [(speed, _)] in speeds[11:]] == ["5 words/s"] * len(speeds[11:])
    [(_, left)], now_done = speeds[-1], int(re.findall(r"in (\d+) s", lines[-2])[0])
    assert int(left) == 1200 - now_done


def on_a_clock(now: list[float], width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, get_time=lambda: now[0], color_system=None)


def test_a_bar_says_how_fast_the_last_minute_was() -> None:
    now = [0.0]
    shown = on_a_clock(now)
    with bar_module.drawn_bar(shown, "training", 4000, "words") as bar:
        for amount, seconds in ((1, 600), (10, 100)):
            for _ in range(seconds * 10):  # updates ten times a second
                now[0] += 0.1
                bar.advance(amount / 10)
        now[0] += 1  # a column is drawn anew after a moment
        plain = Console(file=io.StringIO(), width=100, color_system=None)
        plain.print(shown._live_stack[0].get_renderable())
        drawn = plain.file.getvalue()  # type: ignore[attr-defined]
        assert "10 words/s" in drawn
        assert "11:41, 4:00 left" in drawn  # 2,400 words at 10 a second


def test_steps_that_take_longer_than_a_minute_have_a_speed() -> None:
    speed = Speed(0)
    assert speed.left(1) is None
    for done, now in enumerate((100, 200, 500), start=1):
        speed.mark(now, done)
        assert speed.recent == (1, 300 if now == 500 else 100)
    assert speed.left(2) == 600


def test_a_log_never_counts_beyond_an_estimated_total(capsys: pytest.CaptureFixture[str]) -> None:
    with console.make_progress().bar("splitting", 109_000, "bytes") as bar:
        bar.advance(168_000)
    assert capsys.readouterr().err.startswith("splitting: 168k bytes in ")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    return shown


@pytest.mark.parametrize(("width", "facts"), [("120", "words/s  epoch 1/2  lr 0.01"), ("45", "words/s")])
def test_a_bar_fits_the_terminal_and_ends_finished(monkeypatch: pytest.MonkeyPatch, width: str, facts: str) -> None:
    """Also where the total was an estimate, and more or less was done."""
    screen = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", width)
    for done in (7, 10, 13):
        with console.make_progress().bar("training", 10, "words") as bar:
            bar.advance(done, epoch="1/2", lr="0.01")
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
        last = [line for line in re.split(r"[\r\n]", plain) if line.strip()][-1]
        assert re.fullmatch(rf"training [━ ]*100%  \S+ {facts}(  epoch 1/2)?  0:00", last), last
        assert len(last) <= int(width)
        assert "\x1b[31" not in screen.getvalue()  # red


def test_a_bar_says_how_long_it_took() -> None:
    now = 1000.0
    task = Task(TaskID(0), "training", 100, 25, _get_time=lambda: now, fields={"facts": [], "speed": Speed(995.0)})
    task.start_time = 995.0
    assert bar_module._time(task) == "0:05"
    task.finished_time = 3725.0
    assert bar_module._time(task) == "1:02:05"


def test_quiet_leaves_warnings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_output", console.Output(quiet=True))
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
    ("number", "shown"), [(0, "0"), (5, "5"), (999.94, "1k"), (1234, "1.23k"), (12_345_678, "12.3M"), (7e12, "7T")]
)
def test_short_numbers(number: float, shown: str) -> None:
    assert console.compact(number) == shown
