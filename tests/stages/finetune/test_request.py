"""What is asked of many tasks, as far as it cannot be."""

from pathlib import Path

import pytest

from greenadapt.config import MemoryConfig, TrainConfig
from greenadapt.errors import UsageError
from tests.support.small_multitask import request
from tests.support.small_tasks import TinyModel


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
