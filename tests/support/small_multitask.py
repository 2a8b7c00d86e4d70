"""Several small tasks, fitted and with files, for models that share an encoder."""

import json
from pathlib import Path
from typing import Any

import torch

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import AdapterConfig, ReadingOptions, SamplingConfig, TaskConfig, TrainConfig
from greenadapt.inference.models import OpenedModel
from greenadapt.models.adapters.multitask import head_spec, open_multitask, write_part
from greenadapt.models.rows import Rows, RowTable
from greenadapt.models.task_folder import TaskFolder
from greenadapt.models.weights import write_model
from greenadapt.progress import Silent
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.store.files import hash_file
from greenadapt.tasks.base import Task, make_task
from greenadapt.tasks.tasks_file import TaskEntry
from tests.support.small_tasks import lines, ner_file, qa_file, texts_file

PALS = AdapterConfig(size=34)
CONFIGS = {
    "ner": TaskConfig(task="ner", max_length=64),
    "ill.1": TaskConfig(task="classification", max_length=64),
    "number": TaskConfig(task="classification", label_kind="numbers", max_length=64),
    "qa": TaskConfig(task="qa", max_length=64),
}
"""By name, of which one has a dot."""
WRITERS: dict[str, Any] = {
    "ner": (ner_file, "tsv", {}),
    "ill.1": (texts_file, "jsonl", {}),
    "number": (texts_file, "jsonl", {"numbers": True}),
    "qa": (qa_file, "json", {}),
}
TEXTS = ["the virus was isolated from a patient", "heart rate with tachycardia", "a cell"]


def task_file(folder: Path, name: str, part: str) -> Path:
    """The file of a task for ``train``, ``dev`` or ``test``, written if it is missing."""
    write, suffix, options = WRITERS[name]
    path = folder / f"{name}-{part}.{suffix}"
    if not path.is_file():
        n = {"train": 24, "dev": 8, "test": 10}[part]
        write(path, n, ["train", "dev", "test"].index(part), **options)
    return path


def entry(folder: Path, name: str, called: str | None = None, **changes: Any) -> TaskEntry:
    """A task with training and test files."""
    settings: dict[str, Any] = {
        "name": called or name,
        "config": CONFIGS[name],
        "train": (str(task_file(folder, name, "train")),),
        "dev": {},
        "test": {"test": str(task_file(folder, name, "test"))},
        "metric": None,
    }
    return TaskEntry(**{**settings, **changes})


def request(folder: Path, model: Path, names: tuple[str, ...] = ("ner", "ill.1"), **changes: Any) -> FinetuneRequest:
    """A request for these tasks, for two short epochs."""
    settings: dict[str, Any] = {
        "model": str(model),
        "tasks": tuple(entry(folder, name) for name in names),
        "adapter": PALS,
        "sampling": SamplingConfig(sampling="round-robin", steps_per_epoch=4),
        "training": TrainConfig(epochs=2, learning_rate=7e-3, batch_size=8),
    }
    return FinetuneRequest(**{**settings, **changes})


def fitted(folder: Path, name: str) -> Task[Any]:
    """A task with the labels of its training file."""
    task = make_task(CONFIGS[name])
    return task.fit(task.read(str(task_file(folder, name, "train")), Silent()), Silent())


def moved_model(source: Checkpoint, tasks: dict[str, Task[Any]], rows: Rows, seed: int = 0) -> Any:
    """A model of ``tasks`` in which every weight has moved a little, as by training."""
    model = open_multitask(source, {name: head_spec(task, PALS) for name, task in tasks.items()}, rows, seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=draw)
    return model


def write_multitask(model: Any, table: RowTable, folder: Path) -> None:
    """Write a model as training does."""
    write_model(model.encoder, table, folder)
    for name in model.tasks:
        write_part(model, name, folder / "tasks" / name)


def describe(folder: Path, tasks: dict[str, Task[Any]], seeds: tuple[int, ...] = (0,), **settings: Any) -> None:
    """Write the files that describe the tasks of a folder."""
    for name, task in tasks.items():
        shape = {"adapter": {"size": PALS.size}, "metric": task.main, "max_length": 64}
        (folder / "tasks" / name).mkdir(parents=True, exist_ok=True)
        (folder / "tasks" / name / "task.json").write_text(json.dumps({**task.settings(), **shape, **settings}))
    (folder / "multitask.json").write_text(json.dumps({"pool": "mean", "mix": "sample", "tasks": list(tasks)}))
    (folder / "scores.json").write_text(json.dumps({"seeds": [{"seed": seed} for seed in seeds]}))


def files_of(folder: Path) -> dict[str, str]:
    """The hash of each file, including files with times."""
    return {str(path.relative_to(folder)): hash_file(path) for path in folder.rglob("*") if path.is_file()}


def said(folder: Path, name: str, seed: int | None = None, **options: Any) -> list[Any]:
    """The logits of a task's model on ``TEXTS``."""
    model = OpenedModel.open(TaskFolder.open(str(folder), seed, name), ReadingOptions(**options))
    kind, record = model.task.name, {"question": "what heart"}
    examples = [model.task.example({**record, "context": text} if kind == "qa" else text, "here") for text in TEXTS]
    return [logits.tolist() for _, logits in model.logits(model.inputs(examples))]


def predicted(folder: Path, name: str, seed: int | None = None) -> list[dict[str, Any]]:
    """The predictions of a task's model on its test file."""
    model = OpenedModel.open(TaskFolder.open(str(folder), seed, name), ReadingOptions())
    source = task_file(folder.parent, name, "test")
    examples = model.task.read(str(source), Silent())
    return [model.task.decode(*pair) for pair in model.logits(model.inputs(examples))]


def same(folder: Path, name: str, seed: int | None, written: Path) -> bool:
    """Whether a task's model makes the predictions that training wrote."""
    predictions = json.loads(json.dumps(predicted(folder, name, seed)))
    return bool(
        predictions
        == [{key: row[key] for key in prediction} for row, prediction in zip(lines(written), predictions, strict=True)]
    )
