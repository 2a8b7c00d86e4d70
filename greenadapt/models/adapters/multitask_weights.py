"""Models of several tasks: open from a checkpoint, write with one small file per task, and open again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from greenadapt.checkpoints.layout import WEIGHTS_FILE
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import PALS_READ, AdapterConfig
from greenadapt.errors import InputError, MissingError
from greenadapt.models.adapters.multitask import MultitaskModel, TaskHeadSpec
from greenadapt.models.embedding_rows import Rows, RowTable
from greenadapt.models.graph_export import Exported
from greenadapt.models.streamed_rows import StreamedRows
from greenadapt.models.task_folder import TaskFolder, read_task, weight_folders
from greenadapt.models.tensors import as_array, read_tensors, shapes_of
from greenadapt.models.weights import (
    ENCODER,
    load_model,
    load_trained,
    read_trained,
    read_weights,
    refuse_lost,
)
from greenadapt.storage.arrays import write_arrays
from greenadapt.tasks.base import Task


@dataclass(frozen=True, eq=False)
class TrainedTasks:
    """Some tasks of a trained model, for inference."""

    model: MultitaskModel
    """With these tasks alone, in evaluation mode, on the CPU; may be moved."""
    rows: StreamedRows
    """The model's view of the whole embedding."""
    checkpoint: Checkpoint
    """The folder of the whole encoder."""


def head_spec(task: Task[Any], adapter: AdapterConfig) -> TaskHeadSpec:
    """What ``task``, whose labels are known, adds to an encoder."""
    config = task.head_config()
    return TaskHeadSpec(task.head, config.get("num_labels") or len(config["id2label"]), adapter, task.head_shape())


def open_multitask(checkpoint: Checkpoint, heads: Mapping[str, TaskHeadSpec], rows: Rows, seed: int) -> MultitaskModel:
    """The encoder of ``checkpoint``, float32, whose embedding has only ``rows``, with new parts for each of ``heads``.

    In evaluation mode, with the projections that tasks share; on disk each task has a copy of them. A pooler that the
    checkpoint does not have is drawn by ``seed``, as the parts are. Never runs the folder's code. Raises ``InputError``
    if the checkpoint lacks weights of the encoder, and what ``MultitaskModel.of`` raises.
    """
    weights = read_weights(checkpoint)
    weights[checkpoint.embedding_name] = torch.from_numpy(RowTable.of(checkpoint.embedding()).read(rows.ids))
    encoder, new, _ = load_model(checkpoint, ENCODER, {"vocab_size": len(rows)}, weights, seed)
    refuse_lost(checkpoint, new)
    model = MultitaskModel.of(encoder, heads, seed).eval()
    model.share_projections()
    return model


def write_part(model: MultitaskModel, name: str, folder: Path) -> None:
    """Write one task's weights, its adapter and head, float32, into its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: as_array(tensor) for key, tensor in model.part(name).state_dict().items()}
    write_arrays(folder / WEIGHTS_FILE, weights, {"format": "pt"})


def open_tasks(folder: Path, names: Sequence[str], seed: int | None = None) -> TrainedTasks:
    """The tasks ``names`` of the trained model in ``folder``, one of ``finetune``; reads no other weights.

    ``seed`` is that of the training, ``None`` the first one. Raises ``MissingError`` for a task or seed that does
    not exist, ``UsageError`` for tasks of several encoders, ``InputError`` for invalid files.
    """
    found = weight_folders(folder, names, seed)
    trained = read_trained(found.encoder)
    encoder, rows = load_trained(trained, ENCODER)
    described = {name: read_task(folder, name) for name in names}
    for name, one in described.items():
        if one.adapter.settings().get(PALS_READ) != one.settings["adapter"].get(PALS_READ):
            raise InputError(
                f"the task {name} of {folder} was trained by an earlier version, whose {one.adapter.adapter} read the "
                "input of the layer, not that of its feed-forward part",
                "train it again",
            )
    heads = {name: head_spec(one.task, one.adapter) for name, one in described.items()}
    model = MultitaskModel.of(encoder, heads, seed=0).eval()
    for name, part in found.parts.items():
        _read_part(model, name, part)
    return TrainedTasks(model, rows, trained.checkpoint)


def exported_task(folder: TaskFolder) -> Exported:
    """One of several tasks with its encoder, which is to be written as a graph; raises what ``open_tasks`` raises."""
    assert folder.name is not None
    trained = read_trained(folder.weights)
    model = open_tasks(folder.folder, [folder.name], folder.seed).model
    return Exported(model, folder.task.head, trained.table, trained.checkpoint, folder.name)


def _read_part(model: MultitaskModel, name: str, folder: Path) -> None:
    """Load one task's weights; raises ``MissingError`` or ``InputError`` if they are missing or do not fit."""
    file, part = folder / WEIGHTS_FILE, model.part(name)
    if not file.is_file():
        raise MissingError(f"{folder} has no {WEIGHTS_FILE}", "train the task again")
    weights = read_tensors(file)
    found, needed = shapes_of(weights), shapes_of(part.state_dict())
    differ = [key for key in {**needed, **found} if found.get(key) != needed.get(key)]
    if differ:
        key = differ[0]
        raise InputError(
            f"{file} is not of a task with the settings beside it: {key} is {found.get(key, 'not there')}, "
            f"need {needed.get(key, 'none')}",
            "train the task again",
        )
    part.load_state_dict(weights)
