"""``--preset paper`` sets what nothing else sets."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import greenadapt
from greenadapt.config import PAPER, SessionOptions, W2VConfig
from greenadapt.errors import UsageError
from tests.conftest import Run, contents, last_line
from tests.support.small_tasks import TinyModel, adapted, known_text, ner_file, worded_model

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
TRAINED = ("--dim", 16, "--min-count", 1, "--epochs", 1, "--alpha", 0.025, "--workers", 1)


@pytest.fixture
def adapt(tmp_path: Path, tiny_model: TinyModel) -> tuple[object, ...]:
    """The command for a small text."""
    (tmp_path / "text.txt").write_text(known_text(), "utf-8")
    return ("adapt", "-c", "text.txt", "-m", worded_model(tiny_model), *TRAINED)


def rows_of(folder: Path) -> str:
    """The rows that an adapted model was made with."""
    return str(json.loads((folder / "manifest.json").read_text("utf-8"))["config"]["rows"])


def preset_options(folder: Path) -> list[str]:
    """The preset and what it sets in the last command of a card, which makes the same again."""
    command = re.findall(r"^greenadapt (?:adapt|expand) .*$", (folder / "README.md").read_text("utf-8"), re.M)[-1]
    return re.findall(r"--(?:preset|rows|oov|method) \w+", command)


def model_files(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(folder).items() if name not in ("manifest.json", "README.md")}


def test_the_preset_of_adapt(
    run_alone: Run, adapt: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_alone(*adapt, "--rows", "map", "-o", "map")
    # In Python, a file and the environment set it, too.
    w2v = W2VConfig(dim=16, min_count=1, epochs=1, alpha=0.025)
    with pytest.warns(UserWarning, match="explains nothing|no more than by chance"):
        greenadapt.adapt(
            "text.txt", adapt[4], "paper", preset="paper", w2v=w2v, options=SessionOptions(workers=1), progress=False
        )
    (tmp_path / "set.toml").write_text('[adapt]\npreset = "paper"\n')
    run_alone(*adapt, "--config", "set.toml", "-o", "by-file")
    monkeypatch.setenv("GREENADAPT_PRESET", "paper")
    expand = ("expand", "-c", "text.txt", "-m", adapt[4])
    run_alone(*expand, "-o", "by-variable")
    for name in ("paper", "by-file", "by-variable"):
        assert model_files(tmp_path / name) == model_files(tmp_path / "map")
    for name in ("by-file", "by-variable"):
        assert preset_options(tmp_path / name) == ["--preset paper"]
    # Single options win.
    monkeypatch.setenv("GREENADAPT_EXPAND_ROWS", "pieces")
    run_alone(*expand, "-o", "pieces")
    assert rows_of(tmp_path / "pieces") == "pieces"
    run_alone(*expand, "--rows", "norm", "-o", "norm")
    assert rows_of(tmp_path / "norm") == "norm"
    # Set for all commands, it does not stand in the way of one where its values have no effect.
    run_alone("assess", "-m", "map")
    refused = last_line(run_alone("assess", "-m", "map", "--preset", "paper", code=2))
    assert refused.startswith("greenadapt: --preset is for cross-validation")


def test_the_preset_of_cross_validation(
    run_alone: Run, tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[Any] = []

    def stop(_: object, request: Any, *__: object) -> None:
        requests.append(request)
        raise UsageError("stop")

    monkeypatch.setattr("greenadapt.stages.finetune.cross_validation.cross_validate", stop)
    command = ("assess", "-m", adapted(tiny_model), "--task", "ner", "--train", ner_file(tmp_path / "train.tsv"))
    run_alone(*command, "--preset", "paper", "--epochs", 3, code=2)
    [request] = requests
    values = {name: getattr(request.training, name) for name in PAPER}
    assert values == {**PAPER, "epochs": 3}
    assert request.automatic == frozenset()
