"""``greenadapt pretrain`` as people and launchers start it: output, exit codes, interrupts."""

import json
import re
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from greenadapt.config import MemoryConfig, PretrainConfig, TextOptions, TrainConfig
from greenadapt.errors import UsageError
from greenadapt.stages.pretrain import PretrainRequest
from tests.cli.test_finetune import as_options
from tests.conftest import Run, last_line
from tests.support.small_tasks import TinyModel, adapted, read_json
from tests.support.small_texts import text_file

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ("--max-length", 32, "--batch-size", 8, "--lr", 2e-3, "--epochs", 2, "--head-steps", 3)


@pytest.fixture
def text(tmp_path: Path) -> str:
    return text_file(tmp_path / "text.txt").name


@pytest.mark.slow
def test_a_run_and_what_it_prints(run_alone: Run, text: str, tiny_model: TinyModel, tmp_path: Path) -> None:
    text_file(tmp_path / "general.txt", 20, 7)
    command = ("pretrain", "-m", adapted(tiny_model), "--text", text, "--general-text", "general.txt", *QUICK)
    run = partial(run_alone, *command)
    result = run("--json")
    report = json.loads(result.stdout)
    folder = Path(report["folder"])
    assert (report["stage"], report["status"], folder.parent) == ("pretrain", "done", tmp_path / "runs")
    assert folder.name.startswith("pretrain-adapted-")
    assert read_json(folder / "manifest.json")["inputs"]["text 1"]["path"] == str(tmp_path / text)
    assert report["scores"] == read_json(folder / "scores.json")
    assert set(report["scores"]) == {"steps", "epochs", "new_head_steps", "max_length", "losses"}
    assert set(report["scores"]["losses"]["general"]) == {"inputs", "targets", "before", "after"}
    assert "no head for masked language modelling and gets a new one, trained alone for 3 steps first" in result.stderr
    printed = run().stdout
    assert "pretrain: up to date; documents" in printed
    after = report["scores"]["losses"]["heldout"]["after"]["expanded"]
    assert re.search(rf"held-out text +the expanded tokenizer .* {after:.4f} ", printed)
    assert printed.count("general text") == 2


def test_every_setting(run_alone: Run, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[PretrainRequest] = []

    def stop(session: object, request: PretrainRequest) -> None:
        requests.append(request)
        raise UsageError("stop")

    monkeypatch.setattr("greenadapt.stages.pretrain.pretrain", stop)
    config: dict[str, Any] = {
        "max_length": 24, "heldout": 0.25, "mask_share": 0.2, "head_steps": 2, "seed": 4,
    }  # fmt: skip
    training: dict[str, Any] = {
        "mix": "fixed", "epochs": 2, "max_steps": 3, "learning_rate": 1e-3, "warmup": 0.2, "batch_size": 12,
        "weight_decay": 0.1, "precision": "bfloat16",
    }  # fmt: skip
    assert asdict(PretrainConfig()).keys() == config.keys()
    memory = ("--memory", "base", "--strategy", "gated", "--memory-attention", "gate", "--memory-layers", "2")
    memory += ("--memory-source", "0-1", "--gate-init", "normal", "--memory-project", "--unfreeze-memory")
    options = (*as_options(config | training), *memory, "--format", "jsonl", "--field", "body", "--max-tokens", 99)
    run_alone("pretrain", "-m", "any", "--text", text, "--general-text", "b.txt", *options, code=2)
    assert requests == [
        PretrainRequest(
            *("any", (text,), "b.txt", TextOptions("jsonl", ("body",))),
            config=PretrainConfig(**config),
            training=TrainConfig(**training),
            max_tokens=99,
            memory="base",
            memory_config=MemoryConfig("gated", "gate", (2,), "0-1", "normal", project=True, frozen=False),
        )
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-length", 3), "--max-length is 3, must be greater than or equal to 16"),
        (("--memory", "base"), "--memory base, but"),
    ],
)
def test_wrong_usage(
    run_alone: Run, text: str, tiny_model: TinyModel, tmp_path: Path, options: Any, message: str
) -> None:
    result = run_alone("pretrain", "-m", tiny_model(), "--text", text, *options, "-o", "run", code=2)
    assert message in last_line(result)
    assert not (tmp_path / "run").exists()
