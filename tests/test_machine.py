import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from greenadapt.errors import MissingError, UsageError
from greenadapt.training.machine import Machine


def test_one_process_on_the_cpu(capfd: pytest.CaptureFixture[str]) -> None:
    machine = Machine.start("auto")
    assert (machine.rank, machine.processes, machine.is_first) == (0, 1, True)
    assert machine.shared("x") == "x"
    assert machine.first(lambda: 3) == 3
    assert machine.largest(2) == 2
    assert machine.total(torch.tensor(2.5)) == 2.5
    machine.log({"loss": 1.0}, 1)
    machine.wait()
    machine.end()
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(torch.cuda.is_available(), reason="about the CPU")
def test_precision_on_the_cpu() -> None:
    one, other = torch.ones(2, 2), torch.ones(2, 2)
    for precision, expected in (("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        with Machine.start(precision).autocast():  # type: ignore[arg-type]
            assert (one @ other).dtype == expected


def test_an_unknown_tracker_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"--report-to wandbb is no tracker.*tensorboard.*wandb"):
        Machine.start("auto", ["wandbb"])


def test_a_tracker_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", list)
    with pytest.raises(MissingError, match="pip install tensorboard"):
        Machine.start("auto", ["tensorboard"])


def test_a_tracker_gets_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import tracking

    logged: list[Any] = []

    class Tracker(tracking.GeneralTracker):
        name = "tensorboard"
        requires_logging_directory = True

        def __init__(self, run_name: str, logging_dir: Path, **options: Any) -> None:
            super().__init__()
            logged.append((run_name, Path(logging_dir)))

        @property
        def tracker(self) -> None:
            return None

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            pass

        def log(self, values: dict[str, Any], step: int | None = None, **options: Any) -> None:
            logged.append((values, step))

        def finish(self) -> None:
            logged.append("end")

    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "tensorboard", Tracker)
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: [tracking.LoggerType.TENSORBOARD])
    machine = Machine.start("auto", ["tensorboard"], tmp_path)
    machine.log({"loss": 0.5}, 3)
    machine.end()
    assert logged == [("greenadapt", tmp_path), ({"loss": 0.5}, 3), "end"]


def test_preparing_a_model_leaves_its_forward_alone() -> None:
    model = torch.nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = Machine.start("bfloat16").prepare(model)
    assert prepared is model
    assert "forward" not in vars(model)
