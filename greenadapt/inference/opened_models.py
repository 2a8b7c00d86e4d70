"""Fine-tuned models opened for prediction, of one task or of several on one encoder."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import Pool, Precision, RunConfig, TrainConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.task_folder import TaskFolder
from greenadapt.storage.arrays import Array
from greenadapt.tasks.base import Task
from greenadapt.tasks.features import Encoder, Input
from greenadapt.workers import launched_processes

if TYPE_CHECKING:
    from greenadapt.models.adapters.multitask_weights import TrainedTasks
    from greenadapt.models.example_blocks import ViewOutputs
    from greenadapt.models.forward import Inference
    from greenadapt.models.machine import Machine
    from greenadapt.models.memory.input import MemoryReader
    from greenadapt.models.weights import TaskModel


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
    memory: str | None = None
    """Where the general model is that a model needs as its memory; ``None``: where it was when that was trained."""

    def __post_init__(self) -> None:
        RunConfig(max_tokens=self.max_tokens)
        if self.max_length is not None and self.max_length < 16:
            raise UsageError(f"--max-length is {self.max_length}, need at least 16")

    def encoder_of(self, folder: TaskFolder, checkpoint: Checkpoint) -> Encoder:
        """How the model of ``folder``, whose weights ``checkpoint`` has, reads."""
        return Encoder.of(checkpoint, self.max_length or folder.settings.get("max_length"))

    def pool_of(self, folder: TaskFolder) -> Pool:
        """Whose logits decide for the model of ``folder``."""
        pool: Pool = self.pool or folder.settings.get("pool", TrainConfig.pool)
        return pool


@dataclass(frozen=True)
class OpenedModel:
    """One model, and how it reads examples."""

    task: Task[Any]
    encoder: Encoder
    opened: "TaskModel | TrainedTasks"
    run: "Inference"

    @classmethod
    def open(cls, folder: TaskFolder, options: ReadingOptions) -> "OpenedModel":
        """Load the model, with its memory where it has one; raises ``InputError`` if its head is not the task's, and
        what ``MemoryChoice.of_task`` raises.
        """
        from greenadapt.models.adapters.multitask_weights import open_tasks
        from greenadapt.models.forward import Inference
        from greenadapt.models.machine import Machine

        memory = MemoryChoice.of_task(folder, options.memory)
        machine = Machine.start(options.precision, ())
        opened: TaskModel | TrainedTasks
        if folder.name is None:
            opened = _one_model(folder)
            host: Any = opened.model
        else:
            opened = open_tasks(folder.folder, [folder.name], folder.seed)
            host = opened.model.encoder
        encoder, pool = options.encoder_of(folder, opened.checkpoint), options.pool_of(folder)
        run = Inference(options.max_tokens, encoder.special.pad, machine.autocast, pool, task=folder.name)
        if memory is not None:
            run = replace(run, memory=attached(memory, host, folder.weights, encoder, machine))
        model: Any = opened.model
        model.to(machine.device)
        return cls(folder.task, encoder, opened, run)

    def outputs(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> "Iterator[ViewOutputs]":
        """What the model says about each example, in order, by each view that is wanted."""
        from greenadapt.models.forward import outputs

        return outputs(
            self.opened.model, self.opened.rows, self.task.inference(examples, self.encoder, counts), self.run
        )

    def logits(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> Iterator[tuple[Any, Array]]:
        """Each example with its pooled logits, (n_units, k) float32, in order."""
        from greenadapt.models.forward import pooled

        for output in self.outputs(examples, counts):
            yield output.example, pooled(output, self.run.pool)


def _one_model(folder: TaskFolder) -> "TaskModel":
    from greenadapt.models.weights import open_task_model

    opened = open_task_model(folder.weights)
    if opened.head != folder.task.head:
        raise InputError(
            f"{folder.folder} holds a model for {opened.head}, not for {folder.task.head}", "give a model of the task"
        )
    return opened


def attached(memory: MemoryChoice, host: Any, weights: Path, encoder: Encoder, machine: "Machine") -> "MemoryReader":
    """Give ``host``, which was trained with ``memory``, the general model and what was learnt about it, which lies in
    the folder ``weights``; returns how that model reads what ``encoder`` does.
    """
    from greenadapt.models.memory_weights import read_memory

    general = memory.open()
    general.attach(host, encoder, machine, seed=0)
    read_memory(host, weights)
    return general.reader(encoder)


def one_process(command: str) -> None:
    """Raise ``UsageError`` if a launcher started several processes, which would all do the same."""
    if launched_processes()[1] > 1:
        raise UsageError(f"{command} runs in one process", "start it without a launcher, a part of the input each")


@dataclass(frozen=True)
class SharedModel:
    """Several tasks of one folder on the encoder that they share, and how each of them reads examples."""

    folders: Mapping[str, TaskFolder]
    """By the task's name."""
    encoders: Mapping[str, Encoder]
    """By the task's name; they differ at most in how many pieces they read."""
    pools: Mapping[str, Pool]
    """By the task's name: whose logits decide."""
    opened: "TrainedTasks"
    run: "Inference"

    @classmethod
    def open(cls, folders: Mapping[str, TaskFolder], options: ReadingOptions) -> "SharedModel":
        """Load the encoder once, with its memory where it has one, and what each task adds to it.

        Raises what ``open_tasks`` and ``MemoryChoice.of_task`` raise.
        """
        from greenadapt.models.adapters.multitask_weights import open_tasks
        from greenadapt.models.forward import Inference
        from greenadapt.models.machine import Machine

        first = next(iter(folders.values()))
        memory = MemoryChoice.of_task(first, options.memory)
        machine = Machine.start(options.precision, ())
        opened = open_tasks(first.folder, tuple(folders), first.seed)
        encoders = {name: options.encoder_of(folder, opened.checkpoint) for name, folder in folders.items()}
        encoder = next(iter(encoders.values()))
        pools = {name: options.pool_of(folder) for name, folder in folders.items()}
        wanted = {*pools.values()}
        views: Pool = wanted.pop() if len(wanted) == 1 else "mean"  # which computes both views
        run = Inference(options.max_tokens, encoder.special.pad, machine.autocast, views)
        if memory is not None:
            run = replace(run, memory=attached(memory, opened.model.encoder, first.weights, encoder, machine))
        opened.model.to(machine.device)
        return cls(folders, encoders, pools, opened, run)

    def logits(
        self, examples: Sequence[Mapping[str, Any]], cut: Mapping[str, Counter[str]]
    ) -> Iterator[dict[str, tuple[Any, Array]]]:
        """For each entry, by task, its example and the pooled logits of it, (n_units, k) float32.

        ``cut`` counts of each task what was too long, see ``Task.inference``.
        """
        from greenadapt.models.forward import pooled, shared_outputs

        views = {
            name: folder.task.inference([one[name] for one in examples], self.encoders[name], cut[name])
            for name, folder in self.folders.items()
        }
        entries: Iterator[dict[str, Input]] = (
            dict(zip(views, each, strict=True)) for each in zip(*views.values(), strict=True)
        )
        for outputs in shared_outputs(self.opened.model, self.opened.rows, entries, self.run):
            yield {name: (output.example, pooled(output, self.pools[name])) for name, output in outputs.items()}
