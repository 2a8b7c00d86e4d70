import platform
import re
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from greenadapt.config import Precision
from greenadapt.models.machine import Machine, too_large


@pytest.mark.skipif(torch.cuda.is_available(), reason="about the CPU")
@pytest.mark.parametrize(
    ("precision", "features", "predicting", "training"),
    [
        ("auto", {"avx512_bf16": True}, torch.float32, torch.bfloat16),
        ("auto", {"avx2": True, "avx512_bf16": False}, torch.float32, torch.float32),
        ("bfloat16", {}, torch.bfloat16, torch.bfloat16),
    ],
)
def test_precision_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
    precision: Precision,
    features: dict[str, bool],
    predicting: Any,
    training: Any,
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features, raising=False)
    machine, matrix = Machine.start(precision), torch.ones(2, 2)
    with machine.autocast():
        assert (matrix @ matrix).dtype == predicting
    with machine.autocast(is_training=True):
        assert (matrix @ matrix).dtype == training


def test_it_starts_after_a_trainer_of_another_precision(request: pytest.FixtureRequest) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    request.addfinalizer(lambda: AcceleratorState._reset_state(reset_partial_state=True))
    Accelerator(mixed_precision="bf16", cpu=True)  # as transformers' Trainer does with ``bf16``
    machine, matrix = Machine.start("float32"), torch.ones(2, 2)
    with machine.autocast(is_training=True):
        assert (matrix @ matrix).dtype == torch.float32


@pytest.mark.skipif(not hasattr(torch.cpu, "get_capabilities"), reason="this torch does not say")
def test_the_names_of_features_are_those_of_torch() -> None:
    if platform.machine() in ("x86_64", "AMD64"):
        assert {"avx512_bf16", "amx_bf16"} <= {*torch.cpu.get_capabilities()}


def test_what_is_too_large_for_the_gpu() -> None:
    assert re.search(r"one input of 512 pieces .*--max-length", str(too_large(1, 512, 4096)))
    assert re.search("8 inputs of 512 pieces .* use a --max-tokens below 4,096", str(too_large(8, 512, 8192)))
