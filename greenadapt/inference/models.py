"""Fine-tuned models opened for prediction: of one task or several, in one tokenization or both."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from greenadapt.checkpoints.layout import WORD_VECTORS_FILE, CompiledSettings
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import EnsembleRule, Pool, ReadingOptions, TrainConfig
from greenadapt.errors import InputError, UsageError, require_torch
from greenadapt.models.graphs import GraphRunner, open_graph, require_onnx
from greenadapt.models.memory.choice import MemoryChoice
from greenadapt.models.streaming import MOST_EXAMPLES, Inference, ViewOutputs, pool_views, stream_task
from greenadapt.models.task_folder import TaskFolder
from greenadapt.models.word_vectors import WordVectorReader
from greenadapt.store.arrays import Array, ArrayFile
from greenadapt.tasks.base import Encoder, Item, Task, n_outputs
from greenadapt.vectors.stacked import StackedVectors
from greenadapt.workers import group, launched_processes, prefetch

if TYPE_CHECKING:
    from greenadapt.models.forward import TorchRunner
    from greenadapt.models.weights import InferenceModel


MARGIN = 0.9
"""By default, chosen on development sets, see ``benchmarks/results/compile.md``; 0.7 moved F1 further."""
ReadView = Callable[[Iterable[Item], Pool], Iterator[ViewOutputs]]
"""A function that puts inputs through a model in one view."""


def stream_with_margin(
    task: Task[Any], inputs: Iterable[Item], margin: float, read: ReadView, n_pieces: int
) -> Iterator[ViewOutputs]:
    """Yield the outputs of each input, in order; the base view is computed only for units in doubt.

    The expanded view comes first, since it has fewer pieces. If an input has units in doubt (``Task.uncertain_units``),
    the chunks or windows of its base view that hold one of them are read, too. For all other units ``base`` repeats
    ``expanded``. Inputs of ``n_pieces`` go through together.
    """
    groups = group(inputs, lambda item: sum(map(len, item.expanded)), n_pieces, MOST_EXAMPLES)
    with closing(prefetch(groups)) as blocks:
        for block in blocks:
            outputs = [*read(block, "expanded")]
            parts = [_uncertain_part(task, item, output, margin) for item, output in zip(block, outputs, strict=True)]
            base_outputs = iter([*read([part for part in parts if part is not None], "base")])
            for item, part, output in zip(block, parts, outputs, strict=True):
                base = output.expanded if part is None else _fill_in(next(base_outputs), output, item, part)
                yield replace(output, base=base)


def _uncertain_part(task: Task[Any], item: Item, output: ViewOutputs, margin: float) -> Item | None:
    """The part of an input to read in the base view, ``None`` if its views are equal or no unit is in doubt."""
    assert output.expanded is not None
    pairs = zip(item.base, item.expanded, strict=False)
    if len(item.base) == len(item.expanded) and all(np.array_equal(a.ids, b.ids) for a, b in pairs):
        return None
    units = task.uncertain_units(output.example, output.expanded, margin)
    if not len(units):
        return None
    return replace(item, base=[feature for feature in item.base if np.isin(feature.units, units).any()])


def _fill_in(base_output: ViewOutputs, expanded_output: ViewOutputs, item: Item, part: Item) -> Array:
    """The base view's output for units in ``part``, the expanded view's for the other units of ``item``."""
    assert base_output.base is not None
    assert expanded_output.expanded is not None
    in_part, in_item = (
        np.isin(np.arange(item.n_units), np.concatenate([feature.units for feature in view.base]))
        for view in (part, item)
    )
    return np.where((in_item & ~in_part)[:, None], expanded_output.expanded, base_output.base)


@dataclass(frozen=True)
class OpenedModel:
    """A model opened for one task, which may share its runner with others."""

    folder: TaskFolder
    encoder: Encoder
    """How the task reads examples."""
    runner: "TorchRunner | GraphRunner"
    settings: Inference
    margin: float | None = None
    """The margin below which a unit is read in the base view, too; ``None`` reads all twice."""

    @classmethod
    def open(cls, folder: TaskFolder, options: ReadingOptions) -> "OpenedModel":
        """Load the model of a task, see ``open_tasks``."""
        [opened] = cls.open_tasks([folder], options)
        return opened

    @classmethod
    def open_to_predict(cls, folder: TaskFolder, options: ReadingOptions) -> "OpenedModel":
        """The model of a task, with the margin of predictions."""
        return cls.open(folder, replace(options, margin=margin_of(folder, options)))

    @classmethod
    def open_tasks(cls, folders: Sequence[TaskFolder], options: ReadingOptions) -> "list[OpenedModel]":
        """Load a model, with its memory if it has one, for its only task, or for several that share its encoder.

        Raises ``InputError`` if its head is not the task's, and what ``open_tasks``, ``open_graph`` and
        ``MemoryChoice.of_settings`` raise.
        """
        first = folders[0]
        is_compiled = CompiledSettings.read(first.folder) is not None
        model: Any
        if is_compiled:
            model = open_graph(first.folder, n_outputs(first.task))
        else:
            from greenadapt.models.forward import TorchRunner
            from greenadapt.models.machine import Machine
            from greenadapt.models.memory.general_model import GeneralModel, MemoryReader
            from greenadapt.models.weights import read_memory

            memory = MemoryChoice.of_settings(first.settings, first.folder, first.weights, options.memory)
            machine = Machine.start(options.precision)
            model = open_in_torch(folders)
        if model.head != first.task.head:
            raise InputError(
                f"{first.folder} holds a model for {model.head}, not for {first.task.head}",
                "give a model of the task",
            )
        lengths = [options.max_length or folder.settings.get("max_length") for folder in folders]
        checkpoint = Checkpoint(first.folder)  # a seed's folder has no tokenizers
        encoders = [Encoder.of(checkpoint, length) for length in lengths]  # they differ at most in the length
        encoder = encoders[0]
        settings = Inference(options.max_tokens, encoder.special.pad)
        if first.settings.get("word_vectors"):
            table = StackedVectors.open(first.folder / WORD_VECTORS_FILE)
            settings = replace(settings, memory=WordVectorReader.of(encoder.tokenizer, table))
        runner: TorchRunner | GraphRunner
        if is_compiled:
            runner = model
        else:
            settings = replace(settings, autocast=machine.autocast)
            if memory is not None:
                host, general = model.model if first.name is None else model.model.encoder, GeneralModel.open(memory)
                general.attach(host, encoder, machine, seed=0)
                read_memory(host, first.weights)
                settings = replace(settings, memory=MemoryReader.of(encoder, general.checkpoint))
            runner = TorchRunner(model.model.to(machine.device), model.rows)
        margin = None if options.margin == 1 else options.margin
        return [
            cls(folder, encoder, runner, replace(settings, pool=pool_of(folder, options), task=folder.name), margin)
            for folder, encoder in zip(folders, encoders, strict=True)
        ]

    @property
    def task(self) -> Task[Any]:
        """The task that the model was opened for."""
        return self.folder.task

    def inputs(self, examples: Iterable[Any], counts: Counter[str] | None = None) -> Iterator[Item]:
        """The inputs for each example, see ``Task.inference``."""
        return self.task.inference(examples, self.encoder, counts)

    def read(self, inputs: Iterable[Item], pool: Pool) -> Iterator[ViewOutputs]:
        """The outputs of each input, in order, by the views that ``pool`` needs."""
        return stream_task(self.runner, inputs, replace(self.settings, pool=pool))

    def outputs(self, inputs: Iterable[Item]) -> Iterator[ViewOutputs]:
        """The outputs of each input, in order, by each view that is needed, see ``stream_with_margin``."""
        if self.margin is None or self.settings.pool != "mean" or not self.encoder.has_words:
            return stream_task(self.runner, inputs, self.settings)
        return stream_with_margin(self.task, inputs, self.margin, self.read, self.runner.block_pieces)

    def logits(self, inputs: Iterable[Item]) -> Iterator[tuple[Any, Array]]:
        """The example of each input with its pooled logits, (n_units, k) float32, in order."""
        for output in self.outputs(inputs):
            yield output.example, pool_views(output, self.settings.pool)


def pool_of(folder: TaskFolder, options: ReadingOptions) -> Pool:
    """Whose logits decide for the model of ``folder``."""
    return options.pool or folder.settings.get("pool", TrainConfig.pool)


def margin_of(folder: TaskFolder, options: ReadingOptions) -> float | None:
    """The margin of predictions: by default ``MARGIN`` for labels from both tokenizations.

    The tasks of a shared encoder have none, so that together they predict what they predict alone.
    """
    if options.margin is not None:
        return options.margin
    predicts_labels = folder.name is None and "id2label" in folder.task.head_config()
    return MARGIN if predicts_labels and pool_of(folder, options) == "mean" else None


def check_reading(folders: Sequence[TaskFolder], options: ReadingOptions) -> None:
    """Raise ``MissingError`` if what runs the models is not installed, and ``UsageError`` for a precision if a model is
    compiled, or for a margin if a model does not read both tokenizations or has no probabilities.
    """
    for folder in folders:
        if CompiledSettings.read(folder.folder) is None:
            require_torch("running a model that is not compiled")
            continue
        require_onnx("running a compiled model", to_compile=False)
        if options.precision != "auto":
            raise UsageError(f"--precision {options.precision}, but {folder.folder} is compiled", "leave it out")
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


def open_in_torch(folders: Sequence[TaskFolder]) -> "InferenceModel":
    """The torch model of a task, or of several that share its encoder."""
    from greenadapt.models.adapters.multitask import open_tasks
    from greenadapt.models.weights import open_task_model, read_memory
    from greenadapt.models.word_vector_map import attach_word_vectors

    first = folders[0]
    opened = open_task_model(first.weights) if first.name is None else open_tasks(folders)
    if first.settings.get("word_vectors"):
        host = opened.model if first.name is None else opened.model.encoder
        _, dim = ArrayFile(first.folder / WORD_VECTORS_FILE).shape("vectors")
        attach_word_vectors(host, dim, seed=0)
        read_memory(host, first.weights)
    return opened


def require_one_process(command: str) -> None:
    """Raise ``UsageError`` if a launcher started several processes, which would all do the same work."""
    if launched_processes()[1] > 1:
        raise UsageError(f"{command} runs in one process", "start it without a launcher, a part of the input each")


def ensemble_logits(logits: Sequence[Array], rule: EnsembleRule, head: str) -> Array:
    """The logits of an ensemble of models for one example, (n_units, k) float32, from those of each, (n_units, k).

    ``logits`` takes their mean; ``probabilities`` the logarithm of the mean of their probabilities (arXiv 2212.03613,
    section 4, "Ensemble LMs"), so that its softmax is that mean. The probabilities are over the classes, of
    ``QuestionAnswering`` over the units, of start and end each. A ``head`` of one output predicts a number, for which
    either rule takes the mean. A unit without pieces has the logit -inf, and probability 0.

    Raises ``InputError`` if the models do not read the same units.
    """
    if len({len(model_logits) for model_logits in logits}) > 1:
        raise InputError(
            "the models read a context in different numbers of windows, their logits have no mean",
            "give models of the same base model and maximum length",
        )
    if len(logits) == 1 or not len(logits[0]):
        return logits[0]
    values = np.stack(logits).astype(np.float64)
    if rule == "probabilities" and values.shape[-1] > 1:
        total = logsumexp(values, axis=1 if head == "QuestionAnswering" else 2, keepdims=True)
        values -= np.where(np.isneginf(total), 0, total)  # log_softmax has NaN where all logits are -inf
        return np.asarray(logsumexp(values, axis=0) - np.log(len(logits)), np.float32)
    return np.asarray(values.mean(axis=0), np.float32)


def check_alike(models: Sequence[TaskFolder]) -> None:
    """Raise ``InputError`` if models differ in task or labels, and so cannot be an ensemble."""
    first = models[0]
    for model in models[1:]:
        if model.task.name != first.task.name:
            raise InputError(
                f"{first.folder} is for {first.task.name}, {model.folder} for {model.task.name}",
                "give models of one task",
            )
        if model.task.head_config() != first.task.head_config():
            raise InputError(
                f"{first.folder} has the labels {_labels(first)}, {model.folder} has {_labels(model)}",
                "give models that were trained on the same labels",
            )
        if model.settings.get("has_null") != first.settings.get("has_null"):
            raise InputError(
                f"one of {first.folder} and {model.folder} was trained on questions without answer, the other not",
                "give models that were trained alike",
            )


def _labels(model: TaskFolder) -> str:
    return ", ".join(model.task.head_config().get("id2label", {}).values()) or "none"
