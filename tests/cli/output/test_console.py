import io
import json
import re
import warnings

import pytest
from rich.progress import Task, TaskID

from greenadapt.cli.output import bar as bar_module
from greenadapt.cli.output import console, messages


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
    task = Task(TaskID(0), "training", 100, 25, _get_time=lambda: now, fields={"facts": []})
    task.start_time = 995.0
    assert bar_module._time(task) == "0:05"
    task.finished_time = 3725.0
    assert bar_module._time(task) == "1:02:05"


def test_quiet_leaves_warnings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_output", messages.Output(quiet=True))
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
