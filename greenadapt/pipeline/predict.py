"""Predictions of fine-tuned models for input of any size, streamed in order."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from greenadapt.config import EnsembleRule
from greenadapt.corpus.reading import STDIN
from greenadapt.errors import UsageError
from greenadapt.pipeline.ensemble import check_alike, combined_units
from greenadapt.pipeline.memory_choice import check_given
from greenadapt.pipeline.session import require_torch
from greenadapt.pipeline.task_folder import TaskFolder
from greenadapt.pipeline.task_models import OpenedModel, ReadingOptions, one_process
from greenadapt.progress import Progress
from greenadapt.store import Json
from greenadapt.tasks import Task
from greenadapt.tasks.entries import Entry, EntryFormat, blocks, read_entries


@dataclass(frozen=True)
class PredictRequest:
    """What is to be predicted, and by which models."""

    models: tuple[str, ...]
    """Task folders; several are an ensemble."""
    source: str = STDIN
    """See ``read_entries``, also for ``format``."""
    format: EntryFormat | None = None
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    ensemble: EnsembleRule | None = None
    """What is averaged of several models; ``None`` is ``logits``."""

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError("no model", "give the folder that finetune wrote with --model")
        if self.ensemble is not None and len(self.models) == 1:
            raise UsageError(
                f"--ensemble {self.ensemble} needs several models, there is one", "give each with a --model of its own"
            )


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
        check_alike(self._folders)
        check_given(self._folders, request.reading.memory)
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
        rule = self._request.ensemble or "logits"
        members = [OpenedModel.open(folder, self._request.reading) for folder in self._folders]
        with progress.bar("predict", None, "examples") as bar:
            for block in blocks(entries):
                examples = [entry.example for entry in block]
                logits = zip(*map(OpenedModel.logits, members, repeat(examples), cut), strict=True)
                yield [
                    Prediction(entry, self.task.decode(entry.example, combined_units(each, rule, self.task.head)))
                    for entry, each in zip(block, logits, strict=True)
                ]
                bar.advance(len(block))
        if n_cut := max(counts["cut"] for counts in cut):
            progress.warn(f"{n_cut:,} of the examples are longer than the model reads at once, and were cut")


def predict(request: PredictRequest, progress: Progress) -> Iterator[Prediction]:
    """The models' prediction for each entry of the input, in order; see ``Predictor``."""
    for block in Predictor(request).predict(progress):
        yield from block
