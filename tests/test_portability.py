"""The CPU half needs nothing that only Unix has, neither to be imported nor to adapt a model."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import tiny_model_in
from tests.support import without_unix
from tests.test_layers import TORCH_FREE

TEXT = "the coronavirus of a patient with tachycardia\n"
REFUSED = {
    ("--max-time", "9"): "greenadapt: --max-time needs the signal SIGALRM, which this system does not have",
}
Called = tuple[int, str, str]


@dataclass(frozen=True)
class Ended:
    """What an interpreter without Unix did."""

    folder: Path
    failed: dict[str, str]
    """Module → why it cannot be imported."""
    adapted: Called
    neighbours: Called
    doctor: Called
    refused: list[Called]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """All commands in one process: most of its time goes into the imports."""
    folder = tmp_path_factory.mktemp("without-unix")
    (folder / "text.txt").write_text(TEXT * 20)
    (folder / "settings.toml").write_text("min-count = 1\n")
    options = ["--workspace", "ws", "--workers", "1", "--config", "settings.toml"]
    commands = [
        ["adapt", "--corpus", "text.txt", "--model", str(tiny_model_in(folder)), "--out", "adapted", *options],
        ["neighbours", "--model", "adapted", "coronavirus", "--workspace", "ws"],
        ["doctor", "--json"],
        *(["w2v", "--corpus", "text.txt", *option] for option in REFUSED),
    ]
    completed = subprocess.run(
        [sys.executable, without_unix.__file__], capture_output=True, text=True, check=False, cwd=folder,
        input="".join(json.dumps(command) + "\n" for command in commands), env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    failed, adapted, neighbours, doctor, *refused = map(json.loads, completed.stdout.splitlines())
    return Ended(folder, failed, adapted, neighbours, doctor, refused)


@pytest.mark.slow
def test_the_cpu_half_is_imported_without_unix_and_without_gensim(ended: Ended) -> None:
    assert {why for why in ended.failed.values() if "torch" not in why} == set()
    cpu_half = {"cli", "api.calls", "api.models", "server.app", "server.serving", *TORCH_FREE}
    assert {f"greenadapt.{name}" for name in cpu_half} & ended.failed.keys() == set()


@pytest.mark.slow
def test_a_model_is_adapted_without_unix_and_without_gensim(ended: Ended) -> None:
    code, _, error = ended.adapted
    assert code == 0, error
    assert (ended.folder / "adapted" / "model.safetensors").is_file()
    [manifest] = (ended.folder / "ws").glob("names/*/*/w2v/manifest.json")
    assert json.loads(manifest.read_text())["config"]["engine"] == "fast"
    code, output, error = ended.neighbours
    assert code == 0, error
    assert "row → wordpieces" in output
    assert "word vector → word vectors" in output


@pytest.mark.slow
def test_what_needs_unix_is_refused(ended: Ended) -> None:
    assert ended.refused == [[2, "", f"{message}: leave it out\n"] for message in REFUSED.values()]


@pytest.mark.slow
def test_doctor_says_what_is_missing(ended: Ended) -> None:
    code, output, error = ended.doctor
    assert code == 0, error
    checks = {row["check"]: row for row in map(json.loads, output.splitlines())}
    assert checks["cores"]["found"].startswith(str(os.cpu_count()))
