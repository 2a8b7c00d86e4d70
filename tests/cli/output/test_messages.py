"""Messages on stderr: for people, for machines, with details, and in colour."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.cli.output import console
from greenadapt.storage.jobs import Job, Outcome, Place, run_job
from tests.conftest import Run, last_line

KEYS = ["time", "level", "stage", "message"]


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_output", console.Output(as_json=True, command="w2v"))


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def _build(folder: Path) -> Outcome:
    (folder / "file").write_text("x")
    progress = console.make_progress()
    progress.warn("careful\nnow")
    with progress.bar("training", 10, "words") as bar:
        bar.advance(10, lr="0.1")
    return Outcome({})


@pytest.mark.usefixtures("as_json")
def test_machines_get_an_object_a_line_with_the_stage_that_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    console.make_progress().note("before")
    run_job(Place(tmp_path / "w2v"), Job("align", {}, {}, _build), force=False, progress=console.make_progress())
    before, warning, bar = lines(capsys)
    assert [list(one) for one in (before, warning, bar)] == [KEYS, KEYS, [*KEYS, "progress"]]
    time = datetime.fromisoformat(before["time"])
    assert time.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - time) < timedelta(minutes=1)
    assert before | {"time": ""} == {"time": "", "level": "info", "stage": "w2v", "message": "before"}
    assert [warning[name] for name in KEYS[1:]] == ["warning", "align", "careful\nnow"]
    numbers = {"label": "training", "done": 10, "total": 10, "unit": "words", "ended": True, "facts": {"lr": "0.1"}}
    assert bar["progress"] | {"seconds": 0} == {**numbers, "seconds": 0}


@pytest.mark.usefixtures("as_json")
def test_machines_get_numbers_every_ten_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.make_progress().bar("training", 10, "words") as bar:
        for _ in range(4):
            now += 6
            bar.advance(2)
    found = [(one["progress"]["done"], one["progress"]["ended"]) for one in lines(capsys)]
    assert found == [(4, False), (8, False), (8, True)]


def test_an_error_is_an_object_with_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text('log-format = "json"\n')
    for words, code in (
        (["cost", "nowhere", "--log-format", "json"], 1),
        (["cost", "nowhere", "--config", "s.toml"], 1),
        (["w2v", "--epochs", "three", "--log-format", "json"], 2),
        (["w2v", "--config", "none.toml", "--log-format", "json"], 1),
        (["w2v", "--nothing", "--log-format", "json"], 2),
        (["w2v", "--log-format=json", "--corpus"], 2),
    ):
        failed = CliRunner().invoke(app, words)
        [line] = failed.stderr.splitlines()
        error = json.loads(line)
        assert (failed.exit_code, failed.stdout) == (code, "")
        assert [error[name] for name in ("level", "stage", "exit_code")] == ["error", words[0], code]


def test_an_unknown_option_is_an_object_if_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_LOG_FORMAT", "json")
    error = json.loads(CliRunner().invoke(app, ["cost", "--nothing"]).stderr)
    assert (error["exit_code"], "--nothing" in error["message"]) == (2, True)


def test_details_say_why_a_stage_runs_and_which_result_is_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_output", console.Output(quiet=True))
    console.show_details()
    try:
        for force in (False, False, True):
            made = Place(tmp_path / "align"), Job("align", {}, {}, lambda folder: Outcome({}))
            run_job(*made, force=force, progress=console.make_progress())
    finally:
        console.hide_details()
    run_job(*made, force=True, progress=console.make_progress())
    first, took, current, forced, again = capsys.readouterr().err.splitlines()
    assert "no result" in first
    assert "up to date" in current
    assert "--force" in forced
    assert str(tmp_path / ".versions") in current
    assert all(" s, wrote " in line for line in (took, again))


def test_verbose_says_what_is_set_where(run_alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_COST_JSON", "true")
    shown = run_alone("cost", "--verbose").stderr.splitlines()
    assert "greenadapt cost" in shown[0]
    assert shown[1:] == ["set GREENADAPT_COST_JSON: true"]
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
