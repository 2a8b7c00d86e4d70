"""The CPU half needs nothing that only Unix has, neither to be imported nor to adapt a model."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import without_unix
from tests.test_layers import TORCH_FREE

TEXT = "the coronavirus of a patient with tachycardia\n"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, without_unix.__file__, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    return run


@pytest.mark.slow
def test_the_cpu_half_is_imported_without_unix_and_without_gensim(run: Run) -> None:
    completed = run()
    assert completed.returncode == 0, completed.stderr
    failed = json.loads(completed.stdout)
    assert {why for why in failed.values() if "torch" not in why} == set()
    cpu_half = {"cli", "api.calls", "api.models", "server.app", "server.serving", *TORCH_FREE}
    assert {f"greenadapt.{name}" for name in cpu_half} & failed.keys() == set()


@pytest.mark.slow
def test_a_model_is_adapted_without_unix_and_without_gensim(
    run: Run, tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 20)
    (tmp_path / "settings.toml").write_text("min-count = 1\n")
    options = ["--workspace", "ws", "--workers", 1, "--config", "settings.toml"]
    completed = run("adapt", "--corpus", "text.txt", "--model", tiny_model(), "--out", "adapted", *options)
    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "adapted" / "model.safetensors").is_file()
    [manifest] = (tmp_path / "ws").glob("*/*/w2v/manifest.json")
    assert json.loads(manifest.read_text())["config"]["engine"] == "fast"
    completed = run("neighbours", "--corpus", "text.txt", "coronavirus", "--workspace", "ws")
    assert completed.returncode == 0, completed.stderr
    assert "aligned → aligned" in completed.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--max-time", "9"), "greenadapt: --max-time needs the signal SIGALRM, which this system does not have"),
        (("--nice", "9"), "greenadapt: --nice needs the priorities of Unix, which this system does not have"),
    ],
)
def test_what_needs_unix_is_refused(run: Run, option: tuple[str, str], message: str) -> None:
    completed = run("w2v", "--corpus", "text.txt", *option)
    assert (completed.returncode, completed.stderr) == (2, f"{message}: leave it out\n")


@pytest.mark.slow
def test_doctor_says_what_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    completed = run("doctor", "--json")
    assert completed.returncode == 0, completed.stderr
    checks = {row["check"]: row for row in map(json.loads, completed.stdout.splitlines()[1:])}
    assert checks["memory"]["state"] == "ok"
    assert checks["cores"]["found"].startswith(str(os.cpu_count()))
