"""Requests for many tasks that are refused, and what training starts from."""

from pathlib import Path

import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig, TrainConfig
from greenadapt.errors import UsageError
from greenadapt.stages.finetune.request import Start
from greenadapt.tasks.base import Encoder
from tests.conftest import Notes
from tests.support.small_multitask import request
from tests.support.small_tasks import TinyModel, adapted, facts_file


def test_requests_that_cannot_be(tmp_path: Path, tiny_model: TinyModel) -> None:
    model = tiny_model()
    with pytest.raises(UsageError, match="no tasks"):
        request(tmp_path, model, ())
    with pytest.raises(UsageError, match="--keep best needs a development set"):
        request(tmp_path, model, training=TrainConfig(keep="best"))
    with pytest.raises(UsageError, match="--patience needs a development set"):
        request(tmp_path, model, training=TrainConfig(patience=1))
    with pytest.raises(UsageError, match="--strategy logits shares a single head"):
        request(tmp_path, model, memory="base", memory_config=MemoryConfig(strategy="logits"))


def reported(model: Path) -> Notes:
    """What is said of a model without a memory."""
    start, notes = Start.of(str(model), None, MemoryConfig()), Notes()
    assert start.memory is None
    start.report(Encoder.of(Checkpoint.open(model), None), notes)
    return notes


def test_only_a_model_without_added_words_is_mentioned(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model)
    (note,) = reported(model.parent / "base").notes
    assert note.endswith("has no added words: both tokenizations are the same")
    assert reported(model).notes == []


def test_a_model_that_had_a_memory(tiny_model: TinyModel) -> None:
    model = adapted(tiny_model)
    (model / "memory.safetensors").write_bytes(b"")
    (warning,) = reported(model).warnings
    assert warning.endswith("adapted was trained with a memory, which needs --memory")
    facts_file(model)
    start = Start.of(str(model), "base", MemoryConfig())
    assert (start.model.name, start.model.source) == ("tiny-medicine", str(model))
    assert start.memory is not None
