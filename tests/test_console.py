import io
import json

import pytest

from greenadapt.cli import console


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
    assert half == "training: 2 of 10 words in 70 s (0.0286 words/s, about 280 s left)"
    assert done == "training: 10 of 10 words in 350 s (0.0286 words/s)"


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    progress = console.make_progress()
    with progress.bar("training", 10, "words") as bar:
        bar.advance(10, lr="0.01")
    assert "training" in screen.getvalue()
    assert "words/s" in screen.getvalue()
    assert "lr 0.01" in screen.getvalue()


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"word": "Ärzte\n", "n": 1})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"word": "Ärzte\n", "n": 1}


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0"), (5, "5"), (999.94, "1k"), (1234, "1.23k"), (12_345_678, "12.3M"), (7e12, "7T")]
)
def test_short_numbers(number: float, shown: str) -> None:
    assert console._short(number) == shown
