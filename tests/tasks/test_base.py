import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from greenadapt.config import TaskConfig, TaskName
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.storage.files import described_in
from greenadapt.tasks.base import load_task, make_task
from greenadapt.tasks.classification import ClassificationTask
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.qa import QuestionTask


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("ner", NerTask, {"chunk": 7, "gold_chunks": True, "x_class": True}),
        ("classification", ClassificationTask, {"text_fields": ("a", "b"), "label_kind": "numbers"}),
        ("qa", QuestionTask, {"negatives": 5}),
    ],
)
def test_a_task_comes_back_from_its_settings(name: TaskName, kind: type, options: Any) -> None:
    task = make_task(TaskConfig(task=name, **options))
    assert type(task) is kind
    again = load_task(json.loads(json.dumps(task.settings())))
    assert again == task
    assert (again.name, again.head) == (name, task.head)


def test_settings_with_the_entries_of_a_task_folder() -> None:
    fitted = make_task(TaskConfig()).fit([Sentence(("a", "b"), ("O", "B-X"))], Silent())
    for task in (fitted, make_task(TaskConfig(task="classification")), make_task(TaskConfig(task="qa"))):
        in_folder = {**task.settings(), "pool": "mean", "mix": "sample", "max_length": 128}
        assert load_task(in_folder) == task


@pytest.mark.parametrize("settings", [{}, {"task": "nre"}, {"task": ["ner"]}])
def test_a_task_that_there_is_not(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"is not a task: known are ner, classification, qa"):
        load_task(settings)


@pytest.mark.parametrize("settings", [{"task": "ner"}, {"task": "classification", "labels": 5}])
def test_what_a_file_says_that_is_broken(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"task\.json is broken \("), described_in(Path("far/task.json")):
        load_task(settings)


def test_the_registry_itself_loads_no_task() -> None:
    code = "import sys, greenadapt.tasks.base as r; print('greenadapt.tasks.ner' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
