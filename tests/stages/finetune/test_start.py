"""What fine-tuning begins with, and what is said of it."""

from pathlib import Path

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig
from greenadapt.stages.finetune.request import Start
from greenadapt.tasks.features import Encoder
from tests.conftest import Notes
from tests.support.small_tasks import TinyModel, adapted, facts_file


def told(model: Path) -> Notes:
    """What is said of a model without a memory."""
    start, notes = Start.of(str(model), None, MemoryConfig()), Notes()
    assert start.memory is None
    start.report(Encoder.of(Checkpoint.open(model), None), notes)
    return notes


def test_a_plain_model_and_an_expanded_one(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model)
    (note,) = told(model.parent / "base").notes
    assert note.endswith("has no added words: both tokenizations are the same")
    assert told(model).notes == []


def test_a_model_that_had_a_memory(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model)
    (model / "memory.safetensors").write_bytes(b"")
    (warning,) = told(model).warnings
    assert warning.endswith("adapted was trained with a memory, which needs --memory")
    facts_file(model)
    start = Start.of(str(model), "base", MemoryConfig())
    assert (start.model.name, start.model.source) == ("tiny-medicine", str(model))
    assert start.memory is not None
