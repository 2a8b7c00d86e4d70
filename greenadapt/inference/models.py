"""Fine-tuned models opened for prediction: of one task or several, of several seeds, in one tokenization or both.

Reading a text in two tokenizations takes two passes, and averaging helps by itself. So the control of equal cost is one
model's logits averaged over two seeds: what the second tokenization is worth shows only beside that.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from greenadapt.config import Backend, EnsembleRule, Pool, Precision, Quantize, ReadingOptions, TrainConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.models.graphs import GraphRunner, chosen, open_graph
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.streaming import MOST_EXAMPLES, Inference, ViewOutputs, pooled
from greenadapt.models.task_folder import TaskFolder
from greenadapt.storage.arrays import Array, ArrayFile, IntArray
from greenadapt.storage.files import Json
from greenadapt.tasks.base import Encoder, Feature, Input, Task
from greenadapt.workers import ahead, grouped, launched_processes

if TYPE_CHECKING:
    from greenadapt.models.adapters.multitask import TrainedTasks
    from greenadapt.models.graph_export import Exported
    from greenadapt.models.machine import Machine
    from greenadapt.models.memory.cache import MemoryReader
    from greenadapt.models.streaming import ViewOutputs
    from greenadapt.models.weights import TrainedModel


ReadView = Callable[[Iterable[Input], Pool], Iterator[ViewOutputs]]
"""Puts inputs through a model in one view."""


def second_look(
    task: Task[Any], inputs: Iterable[Input], margin: float, read: ReadView, n_pieces: int
) -> Iterator[ViewOutputs]:
    """The outputs of each input, in order, whose mean is the expanded view's where that is sure.

    Of an input with units in doubt (``Task.in_doubt``) the base view is read, too, as far as it holds one of them: the
    chunks of a sentence, the windows of a context. For all other units ``base`` has what ``expanded`` has. The expanded
    view comes first, since it has fewer pieces. Inputs go through together that have ``n_pieces``.
    """
    groups = grouped(inputs, lambda one: sum(map(len, one.expanded)), n_pieces, MOST_EXAMPLES)
    with closing(ahead(groups)) as blocks:
        for block in blocks:
            outputs = [*read(block, "expanded")]
            again = [_again(task, one, output, margin) for one, output in zip(block, outputs, strict=True)]
            second = iter([*read([one for one in again if one is not None], "base")])
            for one, part, output in zip(block, again, outputs, strict=True):
                yield replace(
                    output, base=output.expanded if part is None else _filled(next(second), output, one, part)
                )


def _again(task: Task[Any], one: Input, output: ViewOutputs, margin: float) -> Input | None:
    """The part of an input that is read again, ``None`` where nothing has to be."""
    assert output.expanded is not None
    if _is_same(one):
        return None
    units = task.in_doubt(output.example, output.expanded, margin)
    return replace(one, base=[each for each in one.base if np.isin(each.units, units).any()]) if len(units) else None


def _filled(second: ViewOutputs, first: ViewOutputs, one: Input, part: Input) -> Array:
    """The base view's output where ``part`` speaks for a unit, and the expanded one's where only the rest would."""
    assert second.base is not None
    assert first.expanded is not None
    is_read, is_whole = (np.isin(np.arange(one.n_units), _units(each.base)) for each in (part, one))
    filled: Array = np.where((is_whole & ~is_read)[:, None], first.expanded, second.base)
    return filled


def _units(features: Iterable[Feature]) -> IntArray:
    units: IntArray = np.concatenate([each.units for each in features])
    return units


def _is_same(one: Input) -> bool:
    """Whether both views read the same."""
    pairs = zip(one.base, one.expanded, strict=False)
    return len(one.base) == len(one.expanded) and all(np.array_equal(a.ids, b.ids) for a, b in pairs)


@dataclass(frozen=True)
class OpenedModel:
    """A model opened for its only task, or for some of the tasks that share its encoder."""

    folders: Mapping[str | None, TaskFolder]
    """By the task's name, ``None`` for the only task of a plain model."""
    encoders: Mapping[str | None, Encoder]
    """How each task reads examples; they differ at most in the maximum length."""
    pools: Mapping[str | None, Pool]
    """Whose logits decide for each task."""
    opened: "TrainedModel | TrainedTasks | GraphRunner"
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
        opened: "TrainedModel | TrainedTasks | GraphRunner",
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


def _one_model(folder: TaskFolder) -> "TrainedModel":
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


def combined(logits: Sequence[Array], rule: EnsembleRule, head: str) -> Array:
    """The logits of an ensemble of models for one example, (n_units, k) float32, from those of each, (n_units, k).

    ``logits`` takes their mean; ``probabilities`` the logarithm of the mean of their probabilities (arXiv 2212.03613,
    section 4, "Ensemble LMs"), so that its softmax is that mean. The probabilities are over the classes, of
    ``QuestionAnswering`` over the units, of start and end each. A ``head`` of one output has no classes, it gives a
    number, and the mean is taken. A unit that no piece speaks for has the logit -inf, and probability 0 in that model.
    """
    values = np.stack(logits).astype(np.float64)
    if rule == "probabilities" and values.size and values.shape[-1] > 1:
        values = _log_softmax(values, axis=1 if head == "QuestionAnswering" else 2)
        return np.asarray(logsumexp(values, axis=0) - np.log(len(logits)), np.float32)
    return np.asarray(values.mean(axis=0), np.float32)


def _log_softmax(values: Array, axis: int) -> Array:
    """-inf where all along ``axis`` are -inf, for which scipy's has NaN: nothing is known there."""
    total = logsumexp(values, axis=axis, keepdims=True)
    return np.asarray(values - np.where(np.isneginf(total), 0, total))


def combined_units(logits: Sequence[Array], rule: EnsembleRule, head: str) -> Array:
    """``combined`` of one example: (n_units, k) float32 from those of each model, (n_units, k).

    Raises ``InputError`` if the models do not read the same units.
    """
    if len({len(each) for each in logits}) > 1:
        raise InputError(
            "the models read a context in different numbers of windows, their logits have no mean",
            "give models of the same base model and --max-length",
        )
    is_alone = len(logits) == 1 or not len(logits[0])
    return logits[0] if is_alone else combined(logits, rule, head)


def check_alike(models: Sequence[TaskFolder]) -> None:
    """Raise ``InputError`` if models differ in task or labels, and so cannot be an ensemble."""
    first = models[0]
    for other in models[1:]:
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


def _labels(model: TaskFolder) -> str:
    return ", ".join(model.task.head_config().get("id2label", {}).values()) or "none"


def averaged_over_seeds(task: Task[Any], examples: Sequence[Any], logits: Sequence[Path]) -> list[list[Json]]:
    """Predictions of each seed's model averaged with the next one's, of the last with the first.

    ``logits`` has one file per seed, as fine-tuning keeps them; the base tokenization's are taken. There are as many
    averages as seeds, so that they can be paired with the seeds' own runs; they share models, and vary less than
    as many independent ones would. Two seeds have one average, which is given twice.
    """
    arrays = [ArrayFile(path) for path in logits]
    averages = []
    for first, second in zip(arrays, [*arrays[1:], arrays[0]], strict=True):
        mean: Array = (first["base"] + second["base"]) / 2
        each = np.split(mean, first["offsets"][1:-1])
        averages.append([task.decode(example, one) for example, one in zip(examples, each, strict=True)])
    return averages
