"""``--max-time``."""

from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.errors import UsageError
from greenadapt.fields import parse_duration
from tests.conftest import WORDS, Run


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1h30m", 5400), ("4w", 2_419_200)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0m", "1.5h", "30m1h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--max-time is "):
        parse_duration(text)


@pytest.mark.slow
def test_vectors_that_take_too_long_stop_with_75_and_go_on(
    run_alone: Run, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(" ".join(WORDS) * 20 + "\n" + " ".join(WORDS))
    command = ["w2v", "-c", "text.txt", "-m", tiny_model(), "--workers", 1, "--min-count", 1]
    run_alone(*command, "--epochs", 1)  # imports what is needed
    for seconds in (1, 1, 4, 16, 64):  # a busy machine may need longer to begin with training
        result = run_alone(*command, "--epochs", 10**6, "--max-time", seconds, code=75)
        last = result.stderr.splitlines()[-1]
        assert last.startswith("greenadapt: the time is up (--max-time): the same command resumes")
        if "resuming " in result.stderr:
            break
    assert "resuming " in result.stderr
    assert "max-time" not in run_alone(*command, "--epochs", 1, "--max-time", "1h", "--json").stdout
