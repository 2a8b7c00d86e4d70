"""Fine-tuned models opened for prediction, of one task or of several on one encoder."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenadapt.config import Backend, Pool, Precision, Quantize, ReadingOptions, TrainConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.inference.second_look import second_look
from greenadapt.models.graphs import GraphRunner, chosen, open_graph
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.streaming import Inference, pooled
from greenadapt.models.task_folder import TaskFolder
from greenadapt.storage.arrays import Array
from greenadapt.tasks.base import Encoder, Input, Task
from greenadapt.workers import launched_processes

if TYPE_CHECKING:
    from greenadapt.models.adapters.multitask import TrainedTasks
    from greenadapt.models.graph_export import Exported
    from greenadapt.models.machine import Machine
    from greenadapt.models.memory.cache import MemoryReader
    from greenadapt.models.streaming import ViewOutputs
    from greenadapt.models.weights import TaskModel


@dataclass(frozen=True)
class OpenedModel:
    """A model opened for its only task, or for some of the tasks that share its encoder."""

    folders: Mapping[str | None, TaskFolder]
    """By the task's name, ``None`` for the only task of a plain model."""
    encoders: Mapping[str | None, Encoder]
    """How each task reads examples; they differ at most in the maximum length."""
    pools: Mapping[str | None, Pool]
    """Whose logits decide for each task."""
    opened: "TaskModel | TrainedTasks | GraphRunner"
    run: Inference
    margin: float | None = None
    """Of one task: what the expanded view leaves in doubt, and so is read in the base view, too; ``None`` is all."""

    @classmethod
    def open(cls, folder: TaskFolder, options: ReadingOptions) -> "OpenedModel":
        """Load a model for one task, see ``open_all``."""
        return cls.open_all([folder], options)

    @classmethod
    def open_all(cls, folders: Sequence[TaskFolder], options: ReadingOptions) -> "OpenedModel":
        """Load one model, with its memory if it has one, for tasks that share its encoder.

        Raises ``InputError`` if its head is not the task's, and what ``open_tasks``, ``MemoryChoice.of_task`` and
        ``chosen`` raise.
        """
        first = folders[0]
        backend, quantize = chosen(first.folder, options)
        if backend != "torch":
            refuse_uncompiled(folders, backend)
            opened = open_graph(first.folder, partial(exported, first), backend, quantize)
            _check_head(first, opened.head)
            return cls._with_runner(folders, options, opened)
        if quantize == "bf16":
            options = replace(options, precision="bfloat16")
        return cls._with_torch(folders, options)

    @classmethod
    def _with_runner(
        cls,
        folders: Sequence[TaskFolder],
        options: ReadingOptions,
        opened: "TaskModel | TrainedTasks | GraphRunner",
        **settings: Any,
    ) -> "OpenedModel":
        first = folders[0]
        lengths = {folder.name: options.max_length or folder.settings.get("max_length") for folder in folders}
        encoders = {name: Encoder.of(opened.checkpoint, length) for name, length in lengths.items()}
        encoder = encoders[first.name]
        pools = {folder.name: pool_of(folder, options) for folder in folders}
        wanted = {*pools.values()}
        views: Pool = wanted.pop() if len(wanted) == 1 else "mean"  # which computes both views
        task = first.name if len(folders) == 1 else None
        run = Inference(options.max_tokens, encoder.special.pad, pool=views, task=task, **settings)
        return cls({folder.name: folder for folder in folders}, encoders, pools, opened, run, options.margin)

    @classmethod
    def _with_torch(cls, folders: Sequence[TaskFolder], options: ReadingOptions) -> "OpenedModel":
        from greenadapt.models.adapters.multitask import open_tasks
        from greenadapt.models.machine import Machine

        first = folders[0]
        names = [folder.name for folder in folders if folder.name is not None]
        memory = MemoryChoice.of_task(first, options.memory)
        machine = Machine.start(options.precision, ())
        opened = open_tasks(first.folder, names, first.seed) if names else _one_model(first)
        model: Any = opened.model
        made = cls._with_runner(folders, options, opened, autocast=machine.autocast)
        if memory is not None:
            host = model.encoder if names else model
            reader = attached(memory, host, first.weights, made.encoder, machine)
            made = replace(made, run=replace(made.run, memory=reader))
        model.to(machine.device)
        return made

    @property
    def task(self) -> Task[Any]:
        """The first or only task."""
        return next(iter(self.folders.values())).task

    @property
    def encoder(self) -> Encoder:
        """How the first or only task reads."""
        return next(iter(self.encoders.values()))

    def inputs(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> Iterator[Input]:
        """What the only task's model reads of each example, see ``Task.inference``."""
        return self.task.inference(examples, self.encoder, counts)

    def outputs(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> "Iterator[ViewOutputs]":
        """The only task's outputs for each example, in order, by each view that is wanted."""
        return self.outputs_of(self.inputs(examples, counts))

    def outputs_of(self, views: Iterable[Input]) -> "Iterator[ViewOutputs]":
        """The same for what is read already; with a ``margin`` see ``second_look``."""
        if self.margin is None or self.run.pool != "mean" or not self.encoder.has_words:
            return self.read(views, self.run.pool)
        return second_look(self.task, views, self.margin, self.read, self._block_pieces)

    @property
    def _block_pieces(self) -> int:
        if isinstance(self.opened, GraphRunner):
            return self.opened.block_pieces
        from greenadapt.models.forward import block_pieces

        return block_pieces(self.opened.model)

    def read(self, views: Iterable[Input], pool: Pool) -> "Iterator[ViewOutputs]":
        """The only task's outputs by the views that ``pool`` needs, of everything."""
        run = replace(self.run, pool=pool)
        if isinstance(self.opened, GraphRunner):
            return self.opened.outputs(views, run)
        from greenadapt.models.forward import outputs

        return outputs(self.opened.model, self.opened.rows, views, run)

    def logits(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> Iterator[tuple[Any, Array]]:
        """Each example of the only task with its pooled logits, (n_units, k) float32, in order."""
        return self.logits_of(self.inputs(examples, counts))

    def logits_of(self, views: Iterable[Input]) -> Iterator[tuple[Any, Array]]:
        """The same for what is read already."""
        for output in self.outputs_of(views):
            yield output.example, pooled(output, self.run.pool)

    def logits_of_all(
        self, examples: Sequence[Mapping[str, Any]], cut: Mapping[str, Counter[str]]
    ) -> Iterator[dict[str, tuple[Any, Array]]]:
        """For each entry, by task, its example with its pooled logits, (n_units, k) float32.

        ``cut`` counts for each task what was too long, see ``Task.inference``.
        """
        from greenadapt.models.forward import shared_outputs

        assert not isinstance(self.opened, GraphRunner)  # which has one task
        views = {
            name: self.folders[name].task.inference([one[name] for one in examples], self.encoders[name], counts)
            for name, counts in cut.items()
        }
        entries: Iterator[dict[str, Input]] = (
            dict(zip(views, each, strict=True)) for each in zip(*views.values(), strict=True)
        )
        for outputs in shared_outputs(self.opened.model, self.opened.rows, entries, self.run):
            yield {name: (output.example, pooled(output, self.pools[name])) for name, output in outputs.items()}


def pool_of(folder: TaskFolder, options: ReadingOptions) -> Pool:
    """Whose logits decide for the model of ``folder``."""
    pool: Pool = options.pool or folder.settings.get("pool", TrainConfig.pool)
    return pool


def check_reading(folders: Sequence[TaskFolder], options: ReadingOptions) -> None:
    """Raise what ``chosen`` raises for a model, and ``UsageError`` if there is a precision of other numbers than those
    that the model computes with, or if there is a margin and a model does not read both tokenizations, or has no
    probabilities to compare.
    """
    for folder in folders:
        backend, quantize = chosen(folder.folder, options)
        _check_precision(options.precision, backend, quantize)
    if options.margin is None:
        return
    if len({folder.name for folder in folders}) > 1:
        raise UsageError(f"--margin is for one task, --task has {len(folders)}", "name one task")
    for folder in folders:
        if (pool := pool_of(folder, options)) != "mean":
            raise UsageError(
                f"--margin is about both tokenizations, and {folder.folder} reads only the {pool} one",
                "leave it out, or give --pool mean",
            )
        if folder.task.head_config().get("problem_type") == "regression":
            raise UsageError(f"--margin is between probabilities, and {folder.folder} predicts numbers", "leave it out")


def _check_precision(precision: Precision, backend: Backend, quantize: Quantize) -> None:
    if precision == "auto":
        return
    if backend != "torch":
        raise UsageError(f"--precision {precision} is for --backend torch, this is {backend}", "leave it out")
    if quantize == "bf16" and precision != "bfloat16":
        raise UsageError(f"--precision {precision} and --quantize bf16 exclude each other", "leave out one of them")


def exported(folder: TaskFolder) -> "Exported":
    """The torch model of a task, which is to be written as a graph."""
    if folder.name is not None:
        from greenadapt.models.adapters.multitask import exported_task

        return exported_task(folder)
    from greenadapt.models.graph_export import Exported

    return Exported.of_task(folder.weights)


def refuse_uncompiled(folders: Sequence[TaskFolder], backend: str) -> None:
    """Raise ``UsageError`` for what no graph is made of: several tasks at once, or a model with a memory."""
    folder = folders[0]
    if len(folders) > 1:
        raise UsageError(f"--backend {backend} runs one task, --task has {len(folders)}", "name one task")
    if folder.settings.get("memory") is not None:
        raise UsageError(
            f"{folder.folder} has a memory (G-MAP), which --backend {backend} does not run", "use --backend torch"
        )


def _check_head(folder: TaskFolder, head: str | None) -> None:
    if head != folder.task.head:
        raise InputError(
            f"{folder.folder} holds a model for {head or 'sentence vectors'}, not for {folder.task.head}",
            "give a model of the task",
        )


def _one_model(folder: TaskFolder) -> "TaskModel":
    from greenadapt.models.weights import open_task_model

    opened = open_task_model(folder.weights)
    _check_head(folder, opened.head)
    return opened


def attached(memory: MemoryChoice, host: Any, weights: Path, encoder: Encoder, machine: "Machine") -> "MemoryReader":
    """Give ``host``, which was trained with ``memory``, the general model and what was learnt about it, which lies in
    the folder ``weights``; returns how that model reads what ``encoder`` does.
    """
    from greenadapt.models.weights import read_memory

    general = memory.open()
    general.attach(host, encoder, machine, seed=0)
    read_memory(host, weights)
    return general.reader(encoder)


def one_process(command: str) -> None:
    """Raise ``UsageError`` if a launcher started several processes: all would do the same."""
    if launched_processes()[1] > 1:
        raise UsageError(f"{command} runs in one process", "start it without a launcher, a part of the input each")
