"""A model that a file in a folder names, which nobody may have asked for, is never downloaded."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.conftest import Run, last_line
from tests.support.file_server import serving
from tests.support.small_tasks import adapted, facts_file

pytestmark = pytest.mark.usefixtures("one_thread")
EVIL = "attacker/evil"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The paths requested from a local hub without models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with serving({}) as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        yield server.paths


def renamed(file: Path, *keys: str) -> None:
    """Let ``file`` name another model, as its author could have."""
    values = inner = json.loads(file.read_text("utf-8"))
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = EVIL
    file.write_text(json.dumps(values), "utf-8")


def test_an_adapted_model_does_not(
    requests: list[str], tmp_path: Path, tiny_model: Callable[..., Path], run_alone: Run
) -> None:
    model = adapted(tiny_model)
    facts_file(model)
    renamed(model / "greenadapt.json", "model", "source")
    (tmp_path / "t.conll").write_text("virus\tB-X\nheart\tO\n\n" * 4)
    options = ("--train", "t.conll", "--task", "ner", "-m", model, "--epochs", "1")
    assert EVIL in last_line(run_alone("finetune", *options, "--memory", "base", "-o", "out", code=1))
    assert EVIL in last_line(run_alone("assess", "-m", model, *options[:4], code=1))
    assert requests == []
