"""Predictions of fine-tuned models for input of any size, streamed in order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from greenadapt.arrays import Array
from greenadapt.corpus.reading import STDIN
from greenadapt.errors import InputError, UsageError
from greenadapt.pipeline.finetune import require_torch
from greenadapt.pipeline.task_models import OpenedModel, ReadingOptions, TaskFolder, one_process
from greenadapt.progress import Progress
from greenadapt.store import Json
from greenadapt.tasks import Task
from greenadapt.tasks.entries import Entry, EntryFormat, blocks, read_entries


@dataclass(frozen=True)
class PredictRequest:
    """What is to be predicted, and by which models."""

    models: tuple[str, ...]
    """Task folders; the logits of several are averaged."""
    source: str = STDIN
    """See ``read_entries``, also for ``format``."""
    format: EntryFormat | None = None
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("no model", "give the folder that finetune wrote with --model")


@dataclass(frozen=True)
class Prediction:
    """What the models say about one entry of the input: ``result`` is what the task's ``decode`` gives."""

    entry: Entry
    result: Json

    def as_dict(self) -> Json:
        """``line`` and ``id`` where there are such, and the result."""
        known = {"line": self.entry.line, "id": self.entry.id}
        return {
            **{name: value for name, value in known.items() if value is not None},
            **{name: value for name, value in self.result.items() if name != "id"},
        }


class Predictor:
    """Fine-tuned models of one task, opened for prediction.

    Raises ``MissingError`` or ``InputError`` where a folder is none that ``finetune`` wrote, or two differ in their
    labels.
    """

    def __init__(self, request: PredictRequest) -> None:
        require_torch("predicting")
        one_process("predict")
        self._request = request
        self._folders = [TaskFolder.open(model, request.reading.seed) for model in request.models]
        _check_alike(self._folders)
        self.task: Task[Any] = self._folders[0].task

    def predict(self, progress: Progress) -> Iterator[list[Prediction]]:
        """The predictions in the order of the input, a block at a time, so that memory does not grow with the input.

        Raises ``InputError`` where the input is broken, once the predictions for all before it are out. Says how many
        examples were cut.
        """
        entries = read_entries(self.task, self._request.source, self._request.format, progress)
        if self._request.source != STDIN:  # that a file is missing is said before the models are loaded
            entries = chain(list(islice(entries, 1)), entries)
        cut = [Counter[str]() for _ in self._folders]
        members = [OpenedModel.open(folder, self._request.reading) for folder in self._folders]
        with progress.bar("predict", None, "examples") as bar:
            for block in blocks(entries):
                examples = [entry.example for entry in block]
                logits = zip(*map(OpenedModel.logits, members, repeat(examples), cut), strict=True)
                yield [
                    Prediction(entry, self.task.decode(entry.example, _mean(each)))
                    for entry, each in zip(block, logits, strict=True)
                ]
                bar.advance(len(block))
        if n_cut := max(counts["cut"] for counts in cut):
            progress.warn(f"{n_cut:,} of the examples are longer than the model reads at once, and were cut")


def predict(request: PredictRequest, progress: Progress) -> Iterator[Prediction]:
    """The models' prediction for each entry of the input, in order; see ``Predictor``."""
    for block in Predictor(request).predict(progress):
        yield from block


def _mean(logits: Sequence[Array]) -> Array:
    """The mean over models, (n_units, k); raises ``InputError`` where they do not read the same units."""
    if len({len(each) for each in logits}) > 1:
        raise InputError(
            "the models read a context in different numbers of windows, their logits have no mean",
            "give models of the same base model and --max-length",
        )
    if not len(logits[0]):
        return logits[0]
    return np.asarray(np.mean(logits, axis=0, dtype=np.float32))


def _check_alike(folders: list[TaskFolder]) -> None:
    first = folders[0]
    for other in folders[1:]:
        if other.task.name != first.task.name:
            raise InputError(
                f"{first.folder} is for {first.task.name}, {other.folder} for {other.task.name}",
                "give models of one task",
            )
        if other.task.head_config() != first.task.head_config():
            raise InputError(
                f"{first.folder} has the labels {_labels(first)}, {other.folder} has {_labels(other)}",
                "give models that were trained on the same labels",
            )
        if other.settings.get("has_null") != first.settings.get("has_null"):
            raise InputError(
                f"one of {first.folder} and {other.folder} was trained on questions without answer, the other not",
                "give models that were trained alike",
            )


def _labels(folder: TaskFolder) -> str:
    return ", ".join(folder.task.head_config().get("id2label", {}).values()) or "none"
