"""Predictions of fine-tuned models for input of any size, streamed in order."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from greenadapt.arrays import Array
from greenadapt.config import Pool, Precision, RunConfig, TrainConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.features import Encoder
from greenadapt.model import find_model
from greenadapt.pipeline.finetune import require_torch
from greenadapt.pipeline.session import FINETUNE
from greenadapt.processes import launched_processes
from greenadapt.progress import Progress
from greenadapt.store import MANIFEST, Json, open_result
from greenadapt.tasks import Task
from greenadapt.tasks.entries import STDIN, Entry, EntryFormat, blocks, read_entries
from greenadapt.tasks.registry import load_task
from greenadapt.training.layout import SCORES, SEEDS, TASK_FILE

if TYPE_CHECKING:
    from greenadapt.training.inference import Inference
    from greenadapt.training.models import TaskModel


@dataclass(frozen=True)
class PredictRequest:
    """What is to be predicted, and by which models."""

    models: tuple[str, ...]
    """Task folders; the logits of several are averaged."""
    source: str = STDIN
    """See ``read_entries``, also for ``format``."""
    format: EntryFormat | None = None
    pool: Pool | None = None
    """``None``: as each model was trained."""
    seed: int | None = None
    """Which of the folder's seeds; ``None`` is the first."""
    precision: Precision = TrainConfig.precision
    max_tokens: int = RunConfig.max_tokens
    """Pieces, padding included, that go through the model at once."""

    def __post_init__(self) -> None:
        RunConfig(max_tokens=self.max_tokens)
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
        if launched_processes()[1] > 1:
            raise UsageError("predict runs in one process", "start it without a launcher, a part of the input each")
        self._request = request
        self._folders = [_TaskFolder.open(model, request) for model in request.models]
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
        members = [_Member.open(folder, self._request) for folder in self._folders]
        with progress.bar("predict", None, "examples") as bar:
            for block in blocks(entries):
                examples = [entry.example for entry in block]
                logits = zip(*map(_Member.logits, members, repeat(examples), cut), strict=True)
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


@dataclass(frozen=True)
class _TaskFolder:
    """A folder that ``finetune`` wrote: what its task is, and where the weights of the wanted seed lie."""

    folder: Path
    weights: Path
    settings: Json
    task: Task[Any]

    @classmethod
    def open(cls, model: str, request: PredictRequest) -> "_TaskFolder":
        """Look at everything but the weights."""
        folder = find_model(model).folder
        if (folder / MANIFEST).is_file():
            open_result(folder, FINETUNE)
        settings = _read_object(folder / TASK_FILE)
        try:
            task = load_task(settings)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{folder / TASK_FILE} is broken ({error!r})", "train the model again") from None
        return cls(folder, _weights(folder, request.seed), settings, task)


@dataclass(frozen=True)
class _Member:
    """One model, and how it reads examples."""

    task: Task[Any]
    encoder: Encoder
    opened: "TaskModel"
    run: "Inference"

    @classmethod
    def open(cls, folder: _TaskFolder, request: PredictRequest) -> "_Member":
        """Load the model."""
        from greenadapt.training.inference import Inference
        from greenadapt.training.machine import Machine
        from greenadapt.training.models import open_task_model

        machine = Machine.start(request.precision, ())
        opened = open_task_model(folder.weights)
        model: Any = opened.model
        model.to(machine.device)
        encoder = Encoder.of(opened.checkpoint, folder.settings.get("max_length"))
        pool = request.pool or folder.settings.get("pool", TrainConfig.pool)
        run = Inference(request.max_tokens, encoder.special.pad, machine.autocast, pool)
        return cls(folder.task, encoder, opened, run)

    def logits(self, examples: Iterable[Any], counts: Counter[str]) -> Iterator[Array]:
        """(n_units, k) float32 for each example."""
        from greenadapt.training.inference import outputs, pooled

        views = self.task.inference(examples, self.encoder, counts)
        for output in outputs(self.opened.model, self.opened.rows, views, self.run):
            yield pooled(output, self.run.pool)


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


def _weights(folder: Path, seed: int | None) -> Path:
    """Where the weights of ``seed`` lie: the first one's in the folder itself."""
    if seed is None:
        return folder
    seeds = [entry["seed"] for entry in _read_object(folder / SCORES).get("seeds", [])]
    if seed not in seeds:
        raise MissingError(f"{folder} has no seed {seed}", f"it has {', '.join(map(str, seeds))}")
    return folder if seed == seeds[0] else folder / SEEDS / str(seed)


def _check_alike(folders: list[_TaskFolder]) -> None:
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


def _labels(folder: _TaskFolder) -> str:
    return ", ".join(folder.task.head_config().get("id2label", {}).values()) or "none"


def _read_object(path: Path) -> Json:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise MissingError(
            f"{path.parent} is no fine-tuned model: it has no {path.name}", "give the folder that finetune wrote"
        ) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error})", "train the model again") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a JSON object", "train the model again")
    return content
