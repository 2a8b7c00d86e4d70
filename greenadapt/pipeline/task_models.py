"""Folders of fine-tuned models, and such models opened for inference."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenadapt.arrays import Array
from greenadapt.config import Pool, Precision, RunConfig, TrainConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.features import Encoder
from greenadapt.model import PretrainedModel, find_model
from greenadapt.processes import launched_processes
from greenadapt.store import MANIFEST, Json, read_manifest
from greenadapt.tasks import Task
from greenadapt.tasks.registry import load_task
from greenadapt.tasks.squad import QuestionTask
from greenadapt.training.layout import SCORES, SEEDS, TASK_FILE

if TYPE_CHECKING:
    from greenadapt.training.blocks import ViewOutputs
    from greenadapt.training.inference import Inference
    from greenadapt.training.models import TaskModel


@dataclass(frozen=True)
class ReadingOptions:
    """How models read what they are asked about."""

    pool: Pool | None = None
    """``None``: as each model was trained."""
    seed: int | None = None
    """Which of a folder's seeds; ``None`` is the first."""
    precision: Precision = TrainConfig.precision
    max_tokens: int = RunConfig.max_tokens
    """Pieces, padding included, that go through the model at once."""
    max_length: int | None = None
    """Pieces that a model reads at once; ``None``: as it was trained."""

    def __post_init__(self) -> None:
        RunConfig(max_tokens=self.max_tokens)
        if self.max_length is not None and self.max_length < 16:
            raise UsageError(f"--max-length is {self.max_length}, need at least 16")


@dataclass(frozen=True)
class TaskFolder:
    """A task's model on disk: what its task is, and where the weights of the wanted seed lie."""

    folder: Path
    weights: Path
    settings: Json
    task: Task[Any]

    @classmethod
    def open(cls, model: str, seed: int | None = None) -> "TaskFolder":
        """Look at everything but the weights of a folder that ``finetune`` wrote, or ``expand`` from one.

        Raises ``MissingError`` or ``InputError`` where it is none.
        """
        folder = find_model(model).folder
        if (folder / MANIFEST).is_file():
            read_manifest(folder)  # refuses another format version
        settings = _read_object(folder / TASK_FILE)
        try:
            task = load_task(settings)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{folder / TASK_FILE} is broken ({error!r})", "train the model again") from None
        return cls(folder, _weights(folder, seed), settings, task)

    @classmethod
    def open_questions(cls, found: PretrainedModel, seed: int | None = None) -> "TaskFolder":
        """The same for a model that answers questions, which may also come from elsewhere, without ``task.json``.

        Raises ``InputError`` for a model of another task, ``UsageError`` for a seed of one from elsewhere.
        """
        if not (found.folder / TASK_FILE).is_file():
            if seed is not None:
                raise UsageError(f"--seed {seed}, but finetune did not write {found.source}", "leave out --seed")
            return cls(found.folder, found.folder, {}, QuestionTask())
        opened = cls.open(str(found.folder), seed)
        if not isinstance(opened.task, QuestionTask):
            raise InputError(
                f"{found.source} is for {opened.task.name}, not for question answering",
                "give a model that finetune --task qa wrote",
            )
        return opened


@dataclass(frozen=True)
class OpenedModel:
    """One model, and how it reads examples."""

    task: Task[Any]
    encoder: Encoder
    opened: "TaskModel"
    run: "Inference"

    @classmethod
    def open(cls, folder: TaskFolder, options: ReadingOptions) -> "OpenedModel":
        """Load the model; raises ``InputError`` where its head is not the task's."""
        from greenadapt.training.inference import Inference
        from greenadapt.training.machine import Machine
        from greenadapt.training.models import open_task_model

        machine = Machine.start(options.precision, ())
        opened = open_task_model(folder.weights)
        if opened.head != folder.task.head:
            raise InputError(
                f"{folder.folder} holds a model for {opened.head}, not for {folder.task.head}",
                "give a model of the task",
            )
        model: Any = opened.model
        model.to(machine.device)
        encoder = Encoder.of(opened.checkpoint, options.max_length or folder.settings.get("max_length"))
        pool = options.pool or folder.settings.get("pool", TrainConfig.pool)
        run = Inference(options.max_tokens, encoder.special.pad, machine.autocast, pool)
        return cls(folder.task, encoder, opened, run)

    def outputs(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> "Iterator[ViewOutputs]":
        """What the model says about each example, in order, by each view that is wanted."""
        from greenadapt.training.inference import outputs

        views = self.task.inference(examples, self.encoder, counts)
        return outputs(self.opened.model, self.opened.rows, views, self.run)

    def logits(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> Iterator[Array]:
        """(n_units, k) float32 for each example, pooled."""
        from greenadapt.training.inference import pooled

        for output in self.outputs(examples, counts):
            yield pooled(output, self.run.pool)


def one_process(command: str) -> None:
    """Raise ``UsageError`` where a launcher started several processes, which would all do the same."""
    if launched_processes()[1] > 1:
        raise UsageError(f"{command} runs in one process", "start it without a launcher, a part of the input each")


def _weights(folder: Path, seed: int | None) -> Path:
    """Where the weights of ``seed`` lie: the first one's in the folder itself."""
    if seed is None:
        return folder
    if not (folder / SCORES).is_file():
        raise MissingError(f"{folder} has one model, no seed {seed}", "leave out --seed")
    seeds = [entry["seed"] for entry in _read_object(folder / SCORES).get("seeds", [])]
    if seed not in seeds:
        raise MissingError(f"{folder} has no seed {seed}", f"it has {', '.join(map(str, seeds))}")
    return folder if seed == seeds[0] else folder / SEEDS / str(seed)


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
