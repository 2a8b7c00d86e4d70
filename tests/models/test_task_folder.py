"""Folders of fine-tuned models of one task and of several: which is meant, and where its weights lie."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from greenadapt.errors import MissingError, UsageError
from greenadapt.models.task_folder import TaskFolder
from greenadapt.tasks.qa import QuestionTask
from tests.support.small_multitask import describe, fitted
from tests.support.small_tasks import TinyModel


@pytest.fixture
def folder(tiny_model: TinyModel, tmp_path: Path) -> Path:
    """A plain encoder that two tasks share, as far as its files say, of the seeds 3 and 7."""
    folder = tiny_model()
    describe(folder, {name: fitted(tmp_path, name) for name in ("ill.1", "qa")}, (3, 7))
    (folder / "seeds" / "7").mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(folder / name, folder / "seeds" / "7" / name)
    return folder


def test_one_of_several(folder: Path) -> None:
    opened = TaskFolder.open(str(folder), task="ill.1")
    assert (opened.folder, opened.weights, opened.name, opened.seed) == (folder, folder, "ill.1", None)
    assert opened.task.name == "classification"
    assert TaskFolder.open(str(folder), 3, "qa").weights == folder
    assert TaskFolder.open(str(folder), 7, "qa").weights == folder / "seeds" / "7"
    with pytest.raises(MissingError, match="has no seed 5: it has 3, 7"):
        TaskFolder.open(str(folder), 5, "qa")
    with pytest.raises(UsageError, match=r"has 2 tasks on one encoder \(ill\.1, qa\): name one with --task"):
        TaskFolder.open(str(folder))


def test_questions(folder: Path, tiny_model: TinyModel) -> None:
    model = str(folder)
    assert isinstance(TaskFolder.open(model, task="qa").task, QuestionTask)
    model = str(tiny_model("BertForQuestionAnswering"))
    with pytest.raises(UsageError, match=r"--task qa, but finetune did not write .*: leave out --task"):
        TaskFolder.open(model, task="qa")


def test_one_task_has_no_names(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("BertForQuestionAnswering")
    settings: dict[str, Any] = QuestionTask().settings()
    (folder / "task.json").write_text(json.dumps(settings))
    assert TaskFolder.open(str(folder)).name is None
    with pytest.raises(UsageError, match=r"--task qa, but .* has one task: leave out --task"):
        TaskFolder.open(str(folder), task="qa")
