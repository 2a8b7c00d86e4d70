"""Several tasks of a trained folder, opened once: seeds and memory, against each task opened alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from greenadapt.config import AdapterConfig, MemoryConfig, ReadingOptions, TaskConfig, TrainConfig
from greenadapt.inference.models import OpenedModel
from greenadapt.models.task_folder import TaskFolder
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.store.arrays import Array
from greenadapt.tasks.tasks_file import TaskEntry
from tests.support.small_inputs import ROUNDING
from tests.support.small_tasks import TinyModel, adapted, ner_file, session, texts_file

TASKS = ("mood", "diseases")
TEXTS = ["the patient with tachycardia was isolated", "coronavirus", "a heart rate of dtypes in the cell", ""]


@pytest.fixture
def trained(tiny_model: TinyModel, tmp_path: Path) -> str:
    """Two tasks on an expanded model with the one it was made from as memory, under two seeds."""
    model = adapted(tiny_model)
    texts, tagged = texts_file(tmp_path / "texts.jsonl", 12), ner_file(tmp_path / "tags.tsv", 12)
    entries = (
        TaskEntry("mood", TaskConfig("classification"), (str(texts),), {}, {}, None),
        TaskEntry("diseases", TaskConfig("ner", max_length=32), (str(tagged),), {}, {}, None),
    )
    request = FinetuneRequest(
        str(model),
        entries,
        AdapterConfig("pals", size=34, layers="top"),
        training=TrainConfig(epochs=2, learning_rate=7e-3, batch_size=6),
        seeds=(0, 4),
        memory=str(model.parent / "base"),
        memory_config=MemoryConfig(strategy="chunk"),
    )
    return str(finetune(session(tmp_path), request).path)


@pytest.mark.slow
def test_each_task_is_pooled_as_it_was_trained(trained: str) -> None:
    folder = Path(trained) / "tasks" / "mood" / "task.json"
    folder.write_text(json.dumps({**json.loads(folder.read_text()), "pool": "expanded"}))
    (Path(trained) / "manifest.json").unlink()
    folders = {name: TaskFolder.open(trained, 4, name) for name in TASKS}
    for names in (TASKS, TASKS[::-1]):
        opened = OpenedModel.open_tasks([folders[name] for name in names], ReadingOptions())
        for name, together in zip(names, opened, strict=True):
            alone = OpenedModel.open(folders[name], ReadingOptions())
            assert alone.settings.pool == together.settings.pool == ("expanded" if name == "mood" else "mean")
            examples = [folders[name].task.example(text, "") for text in TEXTS]
            for got, expected in zip(logits_of(together, examples), logits_of(alone, examples), strict=True):
                np.testing.assert_allclose(got, expected, rtol=0, atol=ROUNDING)


def logits_of(model: OpenedModel, examples: list[Any]) -> list[Array]:
    return [logits for _, logits in model.logits(model.inputs(examples))]
