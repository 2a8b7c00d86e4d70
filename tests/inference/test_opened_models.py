"""Folders of task models: which are taken for what, and how they are opened."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from greenadapt.checkpoints.source import find_model
from greenadapt.config import ReadingOptions, TaskConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.models import OpenedModel, one_process
from greenadapt.models.task_folder import TaskFolder
from greenadapt.tasks.base import make_task
from greenadapt.tasks.qa import QuestionTask
from tests.support.small_tasks import TinyModel

NER = replace(make_task(TaskConfig(task="ner")), labels=("O", "B-X"))
QA = "BertForQuestionAnswering"


@pytest.fixture
def make(tiny_model: TinyModel) -> Callable[..., Path]:
    """``make("BertForTokenClassification", {...})``: a model with this ``task.json``."""

    def build(architecture: str, settings: Any = None, **config: Any) -> Path:
        folder = tiny_model(architecture, name=architecture, **config)
        if settings is not None:
            (folder / "task.json").write_text(settings if isinstance(settings, str) else json.dumps(settings))
        return folder

    return build


def test_a_folder_says_what_it_is_for(make: Callable[..., Path]) -> None:
    settings = {**QuestionTask(has_null=True).settings(), "pool": "expanded", "max_length": 32}
    folder = make(QA, settings)
    for opened in (TaskFolder.open(str(folder)), TaskFolder.open_questions(find_model(str(folder)))):
        assert opened.task == QuestionTask(has_null=True)
        assert opened.weights == folder
    model = OpenedModel.open(opened, ReadingOptions())
    assert (model.run.pool, model.encoder.max_length) == ("expanded", 32)
    model = OpenedModel.open(opened, ReadingOptions("base", max_length=16, max_tokens=99))
    assert (model.run.pool, model.encoder.max_length, model.run.max_tokens) == ("base", 16, 99)


def test_a_model_from_elsewhere_may_answer_questions(make: Callable[..., Path]) -> None:
    found = find_model(str(make(QA)))
    folder = TaskFolder.open_questions(found)
    assert (folder.task, folder.settings) == (QuestionTask(), {})
    model = OpenedModel.open(folder, ReadingOptions())
    assert (model.run.pool, model.encoder.max_length) == ("mean", 160)
    with pytest.raises(UsageError, match=r"--seed 1, but finetune did not write .*Answering: leave out --seed"):
        TaskFolder.open_questions(found, 1)
    with pytest.raises(MissingError, match=r"is not a fine-tuned model: it has no task\.json: give the folder"):
        TaskFolder.open(str(found.folder))


def test_models_of_other_tasks_are_refused(make: Callable[..., Path]) -> None:
    tagger = make("BertForTokenClassification", num_labels=2)
    folder = TaskFolder.open_questions(find_model(str(tagger)))
    with pytest.raises(InputError, match="holds a model for TokenClassification, not for QuestionAnswering"):
        OpenedModel.open(folder, ReadingOptions())
    with pytest.raises(InputError, match="holds a BertModel, no task model"):
        OpenedModel.open(TaskFolder.open_questions(find_model(str(make("BertModel")))), ReadingOptions())
    (tagger / "task.json").write_text(json.dumps(NER.settings()))
    with pytest.raises(InputError, match="is for ner, not for question answering"):
        TaskFolder.open_questions(find_model(str(tagger)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [("{", "is not JSON"), ("[]", "is not a JSON object"), ('{"task": "ner"}', "task.json has no ")],
)
def test_broken_settings(settings: str, message: str, make: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=message):
        TaskFolder.open(str(make("BertForTokenClassification", settings)))


def test_results_of_another_format_version(make: Callable[..., Path]) -> None:
    folder = make(QA, QuestionTask().settings())
    manifest = {"stage": "finetune", "config": {}, "inputs": {}, "greenadapt": "0", "format": 0}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="has format version 0"):
        TaskFolder.open(str(folder))


def test_options_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="--max-tokens is 0"):
        ReadingOptions(max_tokens=0)
    with pytest.raises(UsageError, match="--max-length is 15"):
        ReadingOptions(max_length=15)


def test_one_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    one_process("qa")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="qa runs in one process"):
        one_process("qa")
