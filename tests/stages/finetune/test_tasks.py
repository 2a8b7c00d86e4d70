"""The tasks of a folder, as they are listed."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from greenadapt.errors import UsageError
from greenadapt.stages.finetune.tasks import list_tasks
from tests.support.small_tasks import TinyModel, read_json


def test_what_is_listed(two_tasks: Path, tiny_model: TinyModel) -> None:
    ner, ill = list_tasks(two_tasks)
    assert {**ner, "name": "ner", "kind": "ner", "adapter": "pals", "metric": "f1"} == ner
    assert [ill["name"], ill["kind"]] == ["ill.1", "classification"]
    for task in (ner, ill):
        file = two_tasks / "tasks" / task["name"] / "weights.safetensors"
        assert task["bytes"] == file.stat().st_size
        assert task["weights"] == sum(array.size for array in load_file(file).values())
        assert task["scores"] == read_json(two_tasks / "scores.json")["tasks"][task["name"]]
    with pytest.raises(UsageError, match="has no tasks that share an encoder: give the folder that finetune --tas"):
        list_tasks(tiny_model())
