import platform
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from greenadapt.config import Precision
from greenadapt.models.machine import Machine, too_large


def test_one_process_on_the_cpu(capfd: pytest.CaptureFixture[str]) -> None:
    machine = Machine.start("auto")
    assert (machine.rank, machine.processes, machine.is_first) == (0, 1, True)
    assert machine.shared("x") == "x"
    assert machine.first(lambda: 3) == 3
    assert machine.largest(2) == 2
    assert machine.total(torch.tensor(2.5)) == 2.5
    machine.wait()
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="about the CPU")
@pytest.mark.parametrize(
    ("precision", "features", "predicting", "training"),
    [
        ("auto", {"avx512_bf16": True}, torch.float32, torch.bfloat16),
        ("auto", {"avx2": True, "avx512_bf16": False}, torch.float32, torch.float32),
        ("auto", None, torch.float32, torch.float32),  # an older torch does not say
        ("bfloat16", {}, torch.bfloat16, torch.bfloat16),
    ],
)
def test_precision_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
    precision: Precision,
    features: dict[str, bool] | None,
    predicting: Any,
    training: Any,
) -> None:
    if features is None:
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: features, raising=False)
    machine, matrix = Machine.start(precision), torch.ones(2, 2)
    with machine.autocast():
        assert (matrix @ matrix).dtype == predicting
    with machine.autocast(is_training=True):
        assert (matrix @ matrix).dtype == training


@pytest.fixture
def _no_accelerator() -> Iterator[None]:
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("_no_accelerator")
def test_it_starts_after_a_trainer_of_another_precision() -> None:
    Accelerator(mixed_precision="bf16", cpu=True)  # as transformers' Trainer does with ``bf16``
    machine, matrix = Machine.start("float32"), torch.ones(2, 2)
    with machine.autocast(is_training=True):
        assert (matrix @ matrix).dtype == torch.float32


@pytest.mark.skipif(not hasattr(torch.cpu, "get_capabilities"), reason="this torch does not say")
def test_the_names_of_features_are_those_of_torch() -> None:
    assert {"avx512_bf16", "amx_bf16"} <= {*torch.cpu.get_capabilities()} or platform.machine() not in (
        "x86_64",
        "AMD64",
    )


def test_preparing_a_model_leaves_its_forward_alone() -> None:
    model = torch.nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = Machine.start("bfloat16").prepare(model)
    assert prepared is model
    assert "forward" not in vars(model)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (
            (1, 512, 4096),
            r"one input of 512 pieces does not fit .* memory: .*\(finetune --max-length\)",
        ),
        ((8, 512, 8192), "a batch of 8 inputs of 512 pieces does not fit .* memory: use a --max-tokens below 4,096"),
    ],
)
def test_what_is_too_large_for_the_gpu(numbers: tuple[int, int, int], message: str) -> None:
    assert re.fullmatch(message, str(too_large(*numbers)))
